"""Export a run: a Hugging Face folder of its weights, and a GGUF file of that folder.

An adapter's run becomes a PEFT folder instead, and a head's one in the form of EAGLE's
repositories or of Qwen3-Next's layers, with matrices in 8 bits; they have no GGUF file.

    python -m training.export --run build/train/base --data build/train \\
        --out build/train/export/headrace-base --gguf build/train/export/headrace-base-q8_0.gguf

What the checkpoint's note says of the model decides how it is written. Weights stay float32 in
the folder of a model. Needs headrace itself, whose writer knows GGUF, and PyTorch for what is
added to the base.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from headrace.weights.conversion.convert import convert_to_gguf
from training.data.tokenizer import (
    END_OF_TEXT_ID,
    FIM_MIDDLE_ID,
    FIM_PREFIX_ID,
    FIM_SUFFIX_ID,
    TURN_END_ID,
    served,
    write_tokenizer,
)
from training.members import LICENCE, MEMBERS
from training.models.config import CHECKPOINT_NAME, read_note
from training.models.moe_config import config_of_shape

CODEC = "Q8_0"
# The note of the checkpoint as JSON: a GGUF file says how it was trained (take_up.py reads it).
NOTE_METADATA_KEY = "headrace.training"
# An answer ends with its turn, a completion with its document.
END_IDS = [TURN_END_ID, END_OF_TEXT_ID]
# What a request that names nothing gets: so small a model wanders at temperature 1.
SAMPLING = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
# What is added to the base, by the part of its run's note that says so.
ADDED = {"lora": "an adapter", "head": "a head"}
FIM_PAD_ID, REPOSITORY_NAME_ID, FILE_SEPARATOR_ID = 6, 7, 8


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
    config = config_of_shape(read_note(checkpoint)["model"])
    weights = read_weights(checkpoint)
    write_json(out / "config.json", config.to_hugging_face())
    write_json(
        out / "generation_config.json",
        {"bos_token_id": END_OF_TEXT_ID, "eos_token_id": END_IDS, **SAMPLING},
    )
    # transformers refuses a file that does not name the framework of its layout.
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(served(Tokenizer.from_file(str(tokenizer / "tokenizer.json"))), out)
    return sum(weight.size for weight in weights.values())


def gguf_metadata(name: str, purpose: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says beside shape, tokens and template; `note` is the checkpoint's.

    The ids of the control tokens of fill-in-the-middle go by the keys of llama.cpp's
    gguf-py/gguf/constants.py; ends of text and of turn follow from generation_config.json.
    """
    return {
        "general.name": name,
        "general.license": LICENCE,
        "general.description": purpose,
        NOTE_METADATA_KEY: json.dumps(note),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.fim_pre_token_id": FIM_PREFIX_ID,
        "tokenizer.ggml.fim_mid_token_id": FIM_MIDDLE_ID,
        "tokenizer.ggml.fim_suf_token_id": FIM_SUFFIX_ID,
        "tokenizer.ggml.fim_pad_token_id": FIM_PAD_ID,
        "tokenizer.ggml.fim_rep_token_id": REPOSITORY_NAME_ID,
        "tokenizer.ggml.fim_sep_token_id": FILE_SEPARATOR_ID,
    }


def write_gguf(folder: Path, out: Path, metadata: Mapping[str, Any], codec: str = CODEC) -> int:
    """Write the Hugging Face folder as one GGUF file, matrices in `codec`; return its bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return convert_to_gguf(folder, out, codec, metadata=metadata).nbytes


def export_added(checkpoint: Path, out: Path, note: Mapping[str, Any]) -> int:
    """Write the folder of an adapter or a head; return the bytes of its weights.

    They alone need PyTorch here; and their modules use this one.
    """
    if "head" in note["model"]:
        from training.head import export_head

        return export_head(checkpoint, out)
    from training.adapters import export_adapter

    return export_adapter(checkpoint.parent, out)


def export(run: Path, data: Path, out: Path, gguf: Path | None, name: str, purpose: str) -> None:
    """Write the run's folder `out`, and its GGUF file where one is named; say what was written.

    Raises ValueError for the GGUF file of an adapter or a head.
    """
    checkpoint = run / CHECKPOINT_NAME
    note = read_note(checkpoint)
    if added := next((what for key, what in ADDED.items() if key in note["model"]), ""):
        if gguf is not None:
            raise ValueError(f"{run} is the run of {added}: leave out --gguf")
        print(f"{out}: {export_added(checkpoint, out, note):,} bytes")
        return
    n_parameters = write_hugging_face(checkpoint, data / "tokenizer", out)
    print(f"{out}: {n_parameters:,} parameters")
    if gguf is not None:
        print(f"{gguf}: {write_gguf(out, gguf, gguf_metadata(name, purpose, note)):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="Export a run to Hugging Face's files and GGUF.")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--gguf", type=Path, help="GGUF file to write")
    parser.add_argument("--member", choices=MEMBERS, help="when the run's folder is not named so")
    arguments = parser.parse_args()
    named = arguments.member or arguments.run.name
    if named not in MEMBERS:
        parser.error(f"--run is {arguments.run}, no member's name: add --member")
    member = MEMBERS[named]
    export(
        arguments.run, arguments.data, arguments.out, arguments.gguf, member.name, member.purpose
    )


if __name__ == "__main__":
    main()
