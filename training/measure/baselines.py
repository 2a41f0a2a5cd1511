"""Bits per byte of held-out text for what is not a neural network: the figures beside a model's.

gzip and xz over the held-out text alone, both again when they may first read training text, and
5-gram models of bytes and of tokens trained on exactly the documents that the models train on. The
n-gram models see documents as the models do: each begins behind <|endoftext|>, and the bits of all
its bytes count, those of its end do not. Compressors see one text without boundaries.

    python -m training.measure.baselines --data build/train --json build/train/baselines.json

JSON: {"n_heldout_bytes", "n_heldout_documents", "baselines": {NAME: {"bits_per_byte",
"n_train_bytes", "n_heldout_bits", "n_heldout_symbols", "bits_per_symbol", "how", "cpu_s"}}}, where
NAME is one of gzip, gzip_trained, xz, xz_trained, byte_5gram, token_5gram.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from training.data.corpus import read_documents
from training.data.tokenizer import END_OF_TEXT_ID
from training.measure import ngram

ORDER = 5
# The window of each compressor: nothing further back is of use to it.
GZIP_WINDOW_BYTES = 1 << 15
XZ_WINDOW_BYTES = 1 << 26
# Beside the 256 bytes, what stands before and after a document.
BYTE_BOUNDARY = 256
DOCUMENTS_AT_ONCE = 200

Encode = Callable[[Sequence[str]], Iterator[ngram.Symbols]]


@dataclass(frozen=True)
class Baseline:
    """One figure. `how` says in words how it came about.

    `n_train_bytes` is the training text it could use, `n_heldout_symbols` the symbols (bytes or
    tokens) that the held-out text consists of, `cpu_s` processor time of training and measuring.
    """

    bits_per_byte: float
    n_train_bytes: int
    n_heldout_bits: float
    n_heldout_symbols: int
    bits_per_symbol: float
    how: str
    cpu_s: float


@dataclass(frozen=True)
class Report:
    """All figures, by name."""

    n_heldout_bytes: int
    n_heldout_documents: int
    baselines: dict[str, Baseline]


def gzip_bytes(data: bytes) -> int:
    """The size of `data` as gzip -9 writes it (without a file name and time)."""
    return len(gzip.compress(data, compresslevel=9, mtime=0))


def xz_bytes(data: bytes) -> int:
    """The size of `data` as xz -9e writes it; its window is XZ_WINDOW_BYTES."""
    return len(lzma.compress(data, format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME))


def n_bytes(documents: Sequence[str]) -> int:
    """The bytes of all documents."""
    return sum(len(text.encode()) for text in documents)


def sampled(documents: Sequence[str], limit_bytes: int) -> bytes:
    """Documents of at most `limit_bytes` together, evenly spread over all of them, joined."""
    sizes = [len(text.encode()) for text in documents]
    share = min(1.0, limit_bytes / max(1, sum(sizes)))
    chosen: list[bytes] = []
    taken = 0
    for index, text in enumerate(documents):
        # Whole numbers are passed at even distances, `share` of all the times.
        if int((index + 1) * share) > int(index * share) and taken + sizes[index] <= limit_bytes:
            chosen.append(text.encode())
            taken += sizes[index]
    return b"".join(chosen)


def compressed(size: Callable[[bytes], int], text: bytes, sample: bytes, how: str) -> Baseline:
    """What `text` adds to the compressed size of `sample`, which may be empty."""
    started_s = time.process_time()
    n_bits = 8.0 * (size(sample + text) - (size(sample) if sample else 0))
    cpu_s = time.process_time() - started_s
    per_byte = n_bits / len(text)
    return Baseline(per_byte, len(sample), n_bits, len(text), per_byte, how, cpu_s)


def bytes_of(documents: Sequence[str]) -> Iterator[ngram.Symbols]:
    """Each document as its bytes."""
    for text in documents:
        yield np.frombuffer(text.encode(), dtype=np.uint8)


def tokens_of(tokenizer: Tokenizer, documents: Sequence[str]) -> Iterator[ngram.Symbols]:
    """Each document as its tokens."""
    for first in range(0, len(documents), DOCUMENTS_AT_ONCE):
        for encoding in tokenizer.encode_batch_fast(documents[first : first + DOCUMENTS_AT_ONCE]):
            yield np.array(encoding.ids, dtype=np.uint16)


def kneser_ney(
    encode: Encode,
    n_symbols: int,
    boundary: int,
    train: Sequence[str],
    held_out: Sequence[str],
    how: str,
) -> Baseline:
    """An n-gram model of what `encode` makes of documents."""
    started_s = time.process_time()
    model = ngram.train(encode(train), n_symbols, boundary, ORDER)
    n_bits, n_held_out = 0.0, 0
    for document in encode(held_out):
        n_bits -= float(np.log2(model.probabilities(document)).sum())
        n_held_out += len(document)
    cpu_s = time.process_time() - started_s
    n_bytes, n_train_bytes = (
        sum(len(text.encode()) for text in part) for part in (held_out, train)
    )
    per_byte, per_symbol = n_bits / n_bytes, n_bits / n_held_out
    return Baseline(per_byte, n_train_bytes, n_bits, n_held_out, per_symbol, how, cpu_s)


def measure(
    train: Sequence[str], held_out: Sequence[str], tokenizer: Tokenizer, every: int = 1
) -> Iterator[tuple[str, Baseline]]:
    """All baselines, by name. The byte model trains on every `every`-th document."""
    text = "".join(held_out).encode()
    yield "gzip", compressed(gzip_bytes, text, b"", "gzip -9, held-out text alone")
    sample = sampled(train, XZ_WINDOW_BYTES - len(text))
    how = "what the held-out text adds to gzip -9 of a full window of training text (32 KiB)"
    yield "gzip_trained", compressed(gzip_bytes, text, sample[-GZIP_WINDOW_BYTES:], how)
    yield "xz", compressed(xz_bytes, text, b"", "xz -9e, held-out text alone")
    how = (
        "what the held-out text adds to xz -9e of training documents, evenly spread, that with it "
        "fill the window of 64 MiB"
    )
    yield "xz_trained", compressed(xz_bytes, text, sample, how)
    del sample
    smoothed = "interpolated modified Kneser-Ney"
    part = "every" if every == 1 else f"one in {every}"
    how = f"{ORDER}-gram model of bytes, {smoothed}, trained on {part} training document"
    bytes_model = kneser_ney(bytes_of, 257, BYTE_BOUNDARY, train[::every], held_out, how)
    yield f"byte_{ORDER}gram", bytes_model

    def encode(documents: Sequence[str]) -> Iterator[ngram.Symbols]:
        return tokens_of(tokenizer, documents)

    how = (
        f"{ORDER}-gram model of the models' tokens, {smoothed}, trained on every training document"
    )
    n_tokens = tokenizer.get_vocab_size()
    yield f"token_{ORDER}gram", kneser_ney(encode, n_tokens, END_OF_TEXT_ID, train, held_out, how)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what models are compared with.")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        help="train the model of bytes on one document in so many, to save time and memory",
    )
    arguments = parser.parse_args()
    train, held_out = (read_documents(arguments.data / "corpus", s) for s in ("train", "heldout"))
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer" / "tokenizer.json"))
    found: dict[str, Baseline] = {}
    for name, baseline in measure(train, held_out, tokenizer, arguments.every):
        found[name] = baseline
        print(
            f"{name:14}{baseline.bits_per_byte:8.4f} bits/byte{baseline.cpu_s:8.1f} s", flush=True
        )
    n_bytes = sum(len(text.encode()) for text in held_out)
    report = Report(n_bytes, len(held_out), found)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(report), indent=1) + "\n")


if __name__ == "__main__":
    main()
