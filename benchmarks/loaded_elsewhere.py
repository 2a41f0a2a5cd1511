"""Files of every kind that is made, read by llama.cpp: do they load, and are the tokens the same?

    python -m benchmarks.loaded_elsewhere --llama FOLDER --imatrix FILE \
        --out benchmarks/loaded_elsewhere.json

headrace-base (Q8_0, as shipped) is written once in each kind, every matrix in that kind. llama.cpp
loads the file and continues a prompt greedily; headrace is given the same tokens, and what it
would have chosen at each position is compared, as are the logits. Both round activations, each in
its own way, so a token may differ where two are nearly as likely: then the gap between them is
recorded, over the standard deviation of the logits. FOLDER is built by
`python -m benchmarks.llamacpp.build FOLDER`, the importance that the smallest kinds need by
`headrace imatrix`. `docs/storage-kinds.md` is made from the file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import msgspec

from benchmarks.llamacpp.build import PEERS, Peer, built
from benchmarks.logits_vs_llamacpp import compare, own_logits, peer_logits
from headrace.embedded import EMBEDDED_NAME, embedded_model
from headrace.text.tokenizer import load_tokenizer
from headrace.weights.codecs import CODECS
from headrace.weights.open import open_checkpoint
from headrace.weights.quantize.make import QuantizeOptions, make
from headrace.weights.quantize.plan import mix_of, override_of

PROMPT = (
    "def read_rows(path, separator=','):\n"
    '    """Rows of a table in a text file, a list of strings each."""\n'
    "    rows = []\n    with open(path) as file:\n"
)
NEW_TOKENS = 64


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A file that llama.cpp loaded."""

    kind: str
    matrices: int
    """Tensors of the kind in the file."""
    tokens: int
    same_tokens: int
    """Positions where both choose the same token after the same ones."""
    largest_gap: float
    """Where they do not: between both tokens' logits, over the standard deviation of all."""
    rms_difference: float
    """Of the logits, over the same."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    command: str
    date: str
    program: str
    model: str
    kinds: list[Loaded]


def loaded(peer: Peer, folder: Path, kind: str, importance: Path, threads: int) -> Loaded:
    """What came of one kind's file."""
    path = folder / f"{kind}.gguf"
    order = QuantizeOptions(
        mix_of("Q8_0"), [override_of(f".*={kind}")], importance=importance, allow_requantize=True
    )
    made = make(embedded_model(), path, order, threads=threads)
    tokenizer = load_tokenizer(open_checkpoint(path).tokenizer)
    prompt = list(tokenizer.encode(PROMPT, add_special_tokens=True))
    tokens, expected = peer_logits(peer, path, prompt, NEW_TOKENS, threads)
    got = own_logits(path, [*prompt, *tokens[:-1]], len(tokens), "auto", threads, kv="f32")
    path.unlink()
    found = compare(expected, got)
    return Loaded(
        kind=kind, matrices=made.kinds.get(kind, 0), tokens=found["positions"],
        same_tokens=found["positions"] - found["top_disagreements"],
        largest_gap=round(found["largest_gap_there"], 4),
        rms_difference=round(found["rms_difference"], 5),
    )  # fmt: skip


def all_loaded(peer: Peer, importance: Path, threads: int) -> Iterator[Loaded]:
    """Every kind that is made."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, codec in CODECS.items():
            if codec.can_encode:
                result = loaded(peer, Path(folder), kind, importance, threads)
                print(result, file=sys.stderr, flush=True)
                yield result


def main() -> None:
    """Try every kind, and write the recording."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--llama", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--imatrix", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    recording = Recording(
        command="python -m benchmarks.loaded_elsewhere --llama FOLDER --imatrix FILE --out FILE",
        date=date.today().isoformat(), program=f"llama.cpp of {PEERS['llama'].folder}",
        model=EMBEDDED_NAME, kinds=list(
            all_loaded(built(arguments.llama), arguments.imatrix, arguments.threads)
        ),
    )  # fmt: skip
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1)
    arguments.out.write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
