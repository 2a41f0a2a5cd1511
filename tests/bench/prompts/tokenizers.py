"""Tokenizers to make prompts with: the model that ships, real ones, and hostile small ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from headrace.bench.workload import Tokenization
from headrace.embedded import embedded_model
from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.tokenizer import tokenizer_of_gguf
from tests.text.vocabularies import real


class OfTokenizer:
    """The project's tokenizer as makers of prompts see it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size

    def encode(self, text: str) -> Sequence[int]:
        return self.tokenizer.encode(text, add_special_tokens=False, parse_special=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)


class OfWords:
    """Words with the space before them are tokens; any other character is one, too."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.texts: list[str] = []

    @property
    def vocab_size(self) -> int:
        return len(self.texts)

    def encode(self, text: str) -> Sequence[int]:
        ids = []
        at = 0
        while at < len(text):
            end = at + 1
            if text[at] == " " or text[at].isalpha():
                while end < len(text) and text[end].isalpha():
                    end += 1
            piece = text[at:end]
            if piece not in self.ids:
                self.ids[piece] = len(self.texts)
                self.texts.append(piece)
            ids.append(self.ids[piece])
            at = end
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts[one] for one in ids)


class OfBytes:
    """Every byte is a token."""

    vocab_size = 256

    def encode(self, text: str) -> Sequence[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


class EvenOnly:
    """Every text has an even number of tokens, so odd lengths cannot be had."""

    vocab_size = 512

    def encode(self, text: str) -> Sequence[int]:
        return [half for byte in text.encode() for half in (byte, 256 + byte)]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(one for one in ids if one < 256).decode("utf-8", "replace")


@cache
def shipped() -> OfTokenizer:
    """Of the embedded model: byte-level BPE of 8192 tokens."""
    data = tokenizer_of_gguf(read_gguf(embedded_model()).metadata)
    return OfTokenizer(load_tokenizer(data), data.num_tokens or 0)


def named(assets: Path, name: str) -> Tokenization:
    """One of the shared assets, as `tests.text` names them."""
    tokenizer = real(assets, name)
    return OfTokenizer(tokenizer, 32_000)
