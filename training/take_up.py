"""Make a run's checkpoint and tokenizer again from the member's GGUF file in the repository.

    python -m training.take_up base --work build/train

Checkpoints hold optimizers too and are not kept in the repository; the exported file says how its
run was made, and holds the weights as Q8_0 rounds them. So what hangs on a member can be made, or
its own run gone on with under a larger budget, without training from nothing. The optimizers begin
anew, and the run's progress says so. Exported again, such weights give the same file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from headrace.weights.checkpoint import Checkpoint
from headrace.weights.conversion.to_hf_folder import write_hf_folder
from headrace.weights.open import open_checkpoint
from training.data.tokenizer import CONTROL_TOKENS, VISIBLE_TOKENS, write_tokenizer
from training.export import NOTE_METADATA_KEY
from training.members import MEMBERS
from training.models.config import CHECKPOINT_NAME, NOTE_KEY


def take_up(gguf: Path, checkpoint: Path) -> dict[str, Any]:
    """Write `checkpoint` with the weights and the note of `gguf`; return the note.

    Raises ValueError when the file does not say how it was trained, and FileExistsError rather
    than replace a checkpoint.
    """
    if checkpoint.exists():
        raise FileExistsError(f"{checkpoint} is there: move it away to take its run up anew")
    source = open_checkpoint(gguf)
    text = source.metadata.get(NOTE_METADATA_KEY)
    if not isinstance(text, str):
        raise ValueError(
            f"{gguf.name} has no metadata key {NOTE_METADATA_KEY!r}: "
            "it was not exported by training, or by an older version of it"
        )
    note: dict[str, Any] = json.loads(text)
    taken_up = note["progress"].setdefault("taken_up_tokens", [])
    taken_up.append(note["progress"]["tokens"])
    with tempfile.TemporaryDirectory() as folder:
        write_hf_folder(source, folder, "F32")
        weights = load_file(Path(folder) / "model.safetensors")
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".partial")
    save_file(weights, partial, metadata={NOTE_KEY: json.dumps(note)})
    partial.replace(checkpoint)
    return note


def tokenizer_of(source: Checkpoint) -> Tokenizer:
    """The tokenizer that the family was trained with, from the entries of a GGUF file."""
    entries = source.tokenizer.gguf
    vocabulary = {str(token): index for index, token in enumerate(entries["tokens"])}
    merges = [tuple(str(merge).split(" ")) for merge in entries["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in VISIBLE_TOKENS])
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a run up from its file in the repository.")
    models = [run for run, member in MEMBERS.items() if member.kind == "model"]
    parser.add_argument("run", choices=models)
    parser.add_argument("--work", type=Path, default=Path("build/train"))
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    arguments = parser.parse_args()
    gguf = arguments.root / MEMBERS[arguments.run].gguf
    note = take_up(gguf, arguments.work / arguments.run / CHECKPOINT_NAME)
    tokenizer = arguments.work / "tokenizer"
    if not tokenizer.exists():
        write_tokenizer(tokenizer_of(open_checkpoint(gguf)), tokenizer)
    print(f"{arguments.run}: taken up at {note['progress']['tokens']:,} tokens")


if __name__ == "__main__":
    main()
