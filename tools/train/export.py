"""Export a checkpoint: a Hugging Face folder, a Q8_0 GGUF file of it, and the model card.

Needs headrace itself for the GGUF file (its writer knows the format and the order of rows in Q
and K), and no PyTorch. The command that made the embedded model stands in its CARD.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from headrace.weights.convert import convert_to_gguf

from .card import render_card
from .config import ModelConfig, read_note
from .corpus import LICENCE, read_documents
from .tokenizer import END_OF_TEXT_ID

NAME = "headrace-code-6m"
CODEC = "Q8_0"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def read_weights(checkpoint: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The model's tensors, without the optimizer's."""
    with safe_open(checkpoint, framework="np") as file:
        names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_hugging_face(checkpoint: Path, tokenizer: Path, out: Path) -> int:
    """Write config, weights (F32) and tokenizer to `out`; return the number of parameters."""
    out.mkdir(parents=True, exist_ok=True)
    config = ModelConfig(**read_note(checkpoint)["model"])
    weights = read_weights(checkpoint)
    write_json(out / "config.json", config.to_hugging_face())
    write_json(
        out / "generation_config.json",
        {"bos_token_id": END_OF_TEXT_ID, "eos_token_id": END_OF_TEXT_ID},
    )
    # transformers refuses a file that does not name the framework of its layout.
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, out / name)
    return sum(weight.size for weight in weights.values())


def write_gguf(hugging_face: Path, out: Path) -> int:
    """Write the folder as one GGUF file, matrices in CODEC and norms in F32; return its bytes."""
    metadata = {
        "general.name": NAME,
        "general.license": LICENCE,
        "general.description": "Completes Python code; trained on the standard library's source.",
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
    }
    return convert_to_gguf(hugging_face, out, CODEC, metadata=metadata).nbytes


def count_tokens(corpus: Path, tokenizer: Path) -> int:
    """Tokens in one pass over the training split, with one separator per document."""
    encoder = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    encodings = encoder.encode_batch(read_documents(corpus, "train"))
    return sum(len(encoding.ids) + 1 for encoding in encodings)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Export the embedded model.")
    for name, what in (
        ("run", "folder of the training run"),
        ("corpus", "folder of the corpus"),
        ("tokenizer", "folder of the tokenizer"),
        ("hugging-face", "folder to write"),
        ("gguf", "file to write"),
        ("card", "model card to write"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=what)
    parser.add_argument("--machine", required=True, help="what it was trained on, for the card")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    checkpoint = arguments.run / "checkpoint.safetensors"
    n_parameters = write_hugging_face(checkpoint, arguments.tokenizer, arguments.hugging_face)
    arguments.gguf.parent.mkdir(parents=True, exist_ok=True)
    n_bytes = write_gguf(arguments.hugging_face, arguments.gguf)
    provenance = (arguments.corpus / "provenance.json").read_bytes()
    card = render_card(
        name=NAME,
        file_name=arguments.gguf.name,
        machine=arguments.machine,
        storage=f"{CODEC} matrices, F32 norms, {n_bytes:,} bytes",
        n_parameters=n_parameters,
        train_tokens=count_tokens(arguments.corpus, arguments.tokenizer),
        note=read_note(checkpoint),
        provenance=json.loads(provenance),
        provenance_sha256=hashlib.sha256(provenance).hexdigest(),
    )
    arguments.card.write_text(card)
    print(f"{arguments.gguf}: {n_parameters} parameters, {n_bytes} bytes")


if __name__ == "__main__":
    main()
