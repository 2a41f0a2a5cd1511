"""Real vocabularies of the shared assets, put together into what a checkpoint would hold."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from headrace.text import Tokenizer
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.weights.tokenizer.sentencepiece_model import sentencepiece_entries
from tests.text.vocabularies import CONTROL, NORMAL, composed_arrays, from_gguf, from_json, real

_CHAR_OF_BYTE = {byte: char for char, byte in BYTE_OF_CHAR.items()}
WHISPER = ("<|startoftranscript|>", "<|en|>")
HARMONY = {200002: "<|return|>", 200005: "<|channel|>", 200006: "<|start|>", 200007: "<|end|>"} | {
    200008: "<|message|>",
    200012: "<|call|>",
}
MISTRAL = {
    1: "tokenizer.model.v1",
    2: "mistral_instruct_tokenizer_240216.model.v2",
    3: "mistral_instruct_tokenizer_240323.model.v3",
    7: "mistral_instruct_tokenizer_241114.model.v7",
}


def ranks_of(path: Path) -> list[bytes]:
    """Tokens of a tiktoken file by rank, which has one line of base64 and rank for each."""
    pairs = [line.split() for line in path.read_bytes().splitlines() if line]
    tokens = {int(rank): base64.b64decode(text) for text, rank in pairs}
    assert sorted(tokens) == list(range(len(tokens)))
    return [tokens[rank] for rank in range(len(tokens))]


def merges_of(tokens: list[bytes]) -> list[str]:
    """Merges that make every token out of tokens of lower rank, as byte-pair merging does."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = []
    for rank, token in enumerate(tokens):
        parts = _parts(token, ranks, rank)
        if len(parts) == 2:
            merges.append(" ".join(map(spelled, parts)))
    return merges


def _parts(token: bytes, ranks: dict[bytes, int], below: int) -> list[bytes]:
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        pairs = ((ranks.get(parts[at] + parts[at + 1], below), at) for at in range(len(parts) - 1))
        rank, at = heapq.nsmallest(1, pairs)[0]
        if rank >= below:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def spelled(token: bytes) -> str:
    return "".join(map(_CHAR_OF_BYTE.__getitem__, token))


def from_ranks(path: Path, pre: str, special: tuple[str, ...] = (), **entries: Any) -> Tokenizer:
    """A tokenizer of tiktoken's ranks with special tokens behind them."""
    ranked = ranks_of(path)
    tokens = [*map(spelled, ranked), *special]
    kinds = [NORMAL] * len(ranked) + [CONTROL] * len(special)
    arrays = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": kinds}
    return from_gguf({**arrays, "merges": merges_of(ranked), **entries})


def _harmony(folder: Path) -> Tokenizer:
    path = folder / "tiktoken" / "o200k_base.tiktoken"
    first = len(ranks_of(path))
    special = tuple(HARMONY.get(index, f"<|{index}|>") for index in range(first, 200013))
    return from_ranks(path, "gpt-4o", special)


def _whisper(folder: Path) -> Tokenizer:
    """GPT-2's vocabulary; what the post-processor puts around a text is the caller's."""
    files = folder / "tiktoken"
    ids = json.loads((files / "encoder.json").read_text(encoding="utf-8"))
    special = tuple(token for token in ("<|endoftext|>", *WHISPER) if token not in ids)
    arrays = dict(composed_arrays(files / "encoder.json", files / "vocab.bpe", "gpt-2", special))
    arrays["token_type"][ids["<|endoftext|>"]] = CONTROL
    return from_gguf(arrays)


_OTHERS: dict[str, Callable[[Path], Tokenizer]] = {
    "gpt-2 files": lambda folder: from_gguf(
        composed_arrays(
            folder / "tiktoken" / "encoder.json", folder / "tiktoken" / "vocab.bpe", "gpt-2", ()
        )
    ),
    "gpt-2 ranks": lambda folder: from_gguf(
        _reordered(folder / "tiktoken" / "r50k_base.tiktoken", folder / "tiktoken" / "encoder.json")
    ),
    "gpt-4o": lambda folder: from_ranks(folder / "tiktoken" / "o200k_base.tiktoken", "gpt-4o"),
    "llama3 ranks": lambda folder: from_ranks(folder / "llama3" / "tokenizer.model", "llama-bpe"),
    "llama2 model": lambda folder: from_gguf(
        sentencepiece_entries(folder / "llama2" / "tokenizer.model", {})
    ),
    "gpt-neox json": lambda folder: from_json(folder / "gpt-neox" / "20B_tokenizer.json"),
    "harmony": _harmony,
    "whisper": _whisper,
}


def _reordered(ranks: Path, encoder: Path) -> dict[str, Any]:
    """tiktoken's ranks of GPT-2 under the ids of its vocabulary, which are the same."""
    ids = json.loads(encoder.read_text(encoding="utf-8"))
    tokens = [*map(spelled, ranks_of(ranks))]
    assert [ids[token] for token in tokens] == list(range(len(tokens)))
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "merges": merges_of(ranks_of(ranks)),
    }


@cache
def vocabulary(assets: Path, name: str) -> Tokenizer:
    """A tokenizer of a real model: one of those above, or of `real`."""
    other = _OTHERS.get(name)
    return real(assets, name) if other is None else other(assets / "tokenizers")


@cache
def mistral(assets: Path, version: int, legacy: bool) -> Tokenizer:
    """Mistral's SentencePiece tokenizers. legacy: a space goes before every text, also behind a
    special token."""
    path = assets / "tokenizers" / "mistral" / MISTRAL[version]
    return from_gguf(sentencepiece_entries(path, {"legacy": legacy}))
