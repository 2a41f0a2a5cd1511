"""Encoding of long runs of one character, the worst case of merging and of splitting."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from headrace.text import Tokenizer
from tests.text.vocabularies import byte_level, from_gguf, sentencepiece

BYTES = from_gguf(byte_level())
PIECES = from_gguf(sentencepiece())


def _encodings(tokenizer: Tokenizer) -> dict[str, Callable[[str], list[int]]]:
    """Every way a text becomes ids; the last one has a control token written by a user in it."""
    return {
        "special tokens parsed": lambda t: tokenizer.encode(t, add_special_tokens=False),
        "not parsed": lambda t: tokenizer.encode(t, add_special_tokens=False, parse_special=False),
        "segments": lambda t: tokenizer.encode_segments([(t, False), ("b", True)]),
        "guarded segments": lambda t: tokenizer.encode_segments(
            [("b", True), (t, False), ("</s><|end|>", False), (t, True)]
        ),
    }


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES], ids=["bytes", "pieces"])
@pytest.mark.parametrize("char", ["a", " ", "\n", "<"])
def test_long_runs_of_one_character_do_not_take_quadratic_time(
    tokenizer: Tokenizer, char: str
) -> None:
    """16 times the text may take 100 times as long (quadratic is 256); ids grow in proportion."""

    def timed(encode: Callable[[str], list[int]], count: int) -> tuple[float, int]:
        took = []
        for _ in range(3):
            began = time.thread_time()
            ids = encode(char * count)
            took.append(time.thread_time() - began)
        return min(took), len(ids)

    short, factor = 2_000, 16
    for way, encode in _encodings(tokenizer).items():
        encode(char)  # makes what is made once
        short_s, short_ids = timed(encode, short)
        long_s, long_ids = timed(encode, short * factor)
        assert long_ids == pytest.approx(factor * short_ids, rel=0.02), way
        # A floor, for a clock that hardly ticks during the short run.
        assert long_s < 100 * max(short_s, 1e-3), way
