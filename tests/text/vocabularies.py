"""Small vocabularies made here, and real ones from the shared assets."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from headrace.text import Tokenizer, load_tokenizer
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.weights.checkpoint import TokenizerData
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.tokenizer import tokenizer_of_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def byte_level(**changes: Any) -> dict[str, Any]:
    """256 bytes, a few merges, three control tokens and a user-defined one."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "r l", "rl d", "Ġwo rld", "Ã ©"]
    tokens = [*BYTE_OF_CHAR, *(merge.replace(" ", "") for merge in merges)]
    special = ["<|start|>", "<|end|>", "<|end|>>", "<think>"]
    kinds = [NORMAL] * len(tokens) + [CONTROL] * 3 + [USER_DEFINED]
    start = len(tokens)
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens + special,
        "token_type": kinds,
        "merges": merges,
        "bos_token_id": start,
        "eos_token_id": start + 1,
        **changes,
    }


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """Unknown, two control tokens, 256 bytes, some pieces with scores, a user-defined token."""
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = ["▁", "▁▁", "▁▁▁▁", "▁a", "ab", "▁ab", "aa", "aaa", "he", "llo", "hello", "▁hello"]
    letters = list("abcehlo.,é")
    tail = ["<tool>"]
    tokens = [*head, *pieces, *letters, *tail]
    return {
        "model": "llama",
        "tokens": tokens,
        "scores": [0.0] * len(head) + [-float(i) for i in range(len(tokens) - len(head))],
        "token_type": [UNKNOWN, CONTROL, CONTROL]
        + [BYTE] * 256
        + [NORMAL] * (len(pieces) + len(letters))
        + [USER_DEFINED],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        **changes,
    }


def text_bpe(**changes: Any) -> dict[str, Any]:
    """Gemma 4's kind: merges over text with marks for spaces, bytes for what has no token, runs of
    line breaks that no merge makes."""
    head = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    merges = ["▁ a", "h e", "l l", "he ll", "hell o", "▁ hello", "▁ ▁"]
    letters = list("▁abhelo.,é\n")
    tokens = [*head, *letters, *(merge.replace(" ", "") for merge in merges), "\n\n", "\n\n\n"]
    return {
        "model": "gemma4",
        "tokens": [*tokens, "<|turn>", "<think>"],
        "merges": merges,
        "token_type": [CONTROL, CONTROL, CONTROL, UNKNOWN]
        + [BYTE] * 256
        + [NORMAL] * (len(tokens) - 260)
        + [CONTROL, USER_DEFINED],
        "bos_token_id": 2,
        "eos_token_id": 1,
        "unknown_token_id": 3,
        "padding_token_id": 0,
        **changes,
    }


def from_gguf(arrays: dict[str, Any], **options: Any) -> Tokenizer:
    return load_tokenizer(TokenizerData("gguf", gguf=arrays), **options)


def from_json(path: Path, config: dict[str, Any] | None = None) -> Tokenizer:
    return load_tokenizer(TokenizerData("tokenizer.json", json_path=path, config=config or {}))


@cache
def gguf_arrays(path: Path) -> dict[str, Any]:
    """The `tokenizer.ggml.*` entries of a real file."""
    return dict(tokenizer_of_gguf(read_gguf(path).metadata).gguf)


@cache
def composed_arrays(
    vocab: Path, merges: Path, pre: str, special: tuple[str, ...]
) -> dict[str, Any]:
    """What a converter would write for a vocabulary that comes as vocab.json and merges.txt."""
    ids = json.loads(vocab.read_text(encoding="utf-8"))
    tokens = [*sorted(ids, key=ids.__getitem__), *special]
    lines = merges.read_text(encoding="utf-8").split("\n")
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "merges": [line for line in lines if line and not line.startswith("#version")],
        "token_type": [NORMAL] * len(ids) + [CONTROL] * len(special),
    }


@cache
def real(assets: Path, name: str) -> Tokenizer:
    """A tokenizer of a real model, by the name its test vectors have."""
    folder = assets / "tokenizers"
    if name == "qwen2":
        qwen = folder / "qwen2"
        special: tuple[str, ...] = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
        arrays = composed_arrays(qwen / "vocab.json", qwen / "merges.lf.txt", "qwen2", special)
    elif name == "llama-bpe":
        llama = folder / "ollama-llama3.2" / "llama3.2"
        special = ("<|begin_of_text|>", "<|end_of_text|>")
        arrays = composed_arrays(
            llama / "encoder.json", llama / "vocab.bpe", "llama-bpe", special
        ) | {"bos_token_id": 128000, "eos_token_id": 128001}
    else:
        arrays = gguf_arrays(folder / "ggml-vocab" / f"ggml-vocab-{name}.gguf")
    return from_gguf(arrays)
