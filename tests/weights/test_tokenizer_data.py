"""What files say of their tokenizer: how many tokens, which ends, how special ones are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.weights.gguf.file import read_gguf
from headrace.weights.gguf.tokenizer import tokenizer_of_gguf
from headrace.weights.gguf.values import StringArray
from headrace.weights.tokenizer.data import (
    END_KEYS,
    TokenizerData,
    TokenKind,
    end_ids,
    token_text,
)

from .builders import VOCAB, hf_arrays, write_gguf_with_library, write_json


def test_kinds_are_numbered_as_in_gguf_py() -> None:
    for kind in TokenKind:
        assert gguf.TokenType[kind.name].value == kind


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        ([1, 1, 5, 1, 5], 4),
        ([1, 3, 1, 1, 1], 5),
        (np.array([1, 1, 1, 5, 5], np.int32), 3),
        (None, 5),
    ],
)
def test_padding_at_the_end_of_a_gguf_vocabulary_is_not_counted(kinds: Any, count: int) -> None:
    entries = {"tokens": ["a", "b", "c", "d", "e"], "token_type": kinds}
    assert TokenizerData("gguf", gguf=entries).num_tokens == count


def test_a_vocabulary_without_a_token_is_damaged(tmp_path: Path) -> None:
    entries = {"tokens": ["a", "b"], "token_type": [5, 5]}
    path, negative = tmp_path / "tokenizer.json", tmp_path / "negative.json"
    write_json(path, {"model": {"vocab": {}}})
    write_json(negative, {"model": {"vocab": {"a": -1}}})
    for data in (
        TokenizerData("gguf", gguf=entries),
        TokenizerData("tokenizer.json", json_path=path),
        TokenizerData("tokenizer.json", json_path=negative),
    ):
        with pytest.raises(CheckpointError, match="no id is a token's"):
            data.num_tokens  # noqa: B018


def test_tokens_of_a_gguf_file_are_counted_without_decoding_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf_with_library(tmp_path / "m.gguf", hf_arrays())
    data = tokenizer_of_gguf(read_gguf(path).metadata)
    monkeypatch.delattr(StringArray, "_decode")
    assert data.num_tokens == VOCAB
    with pytest.raises(AttributeError):
        data.gguf["tokens"]


def test_tokens_of_a_tokenizer_json_are_counted_to_the_highest_id(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"

    def count(content: Any) -> int | None:
        write_json(path, content)
        return TokenizerData("tokenizer.json", json_path=path).num_tokens

    vocab = {"a": 0, '":99,': 3, "\\": 1, "\n": 2}
    assert count({"model": {"type": "BPE", "vocab": vocab}}) == 4
    added = [{"id": 7, "content": "x"}, {"id": 5, "content": "y"}]
    assert count({"model": {"vocab": vocab, "merges": [["a", "b"]]}, "added_tokens": added}) == 8
    assert count({"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2]]}}) == 2
    for broken in ({}, {"model": {"vocab": {"a": "b"}}}, {"model": {"vocab": 3}}, []):
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            count(broken)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        TokenizerData("tokenizer.json", json_path=path).num_tokens  # noqa: B018


def test_without_a_tokenizer_nothing_is_counted() -> None:
    assert TokenizerData("none").num_tokens is None


def test_ends_outside_the_vocabulary_are_none() -> None:
    assert END_KEYS == ("eos_token_id", "eot_token_id", "eom_token_id")
    entries = {"eos_token_id": 9, "eot_token_id": 3, "eom_token_id": 4294967295, "bos_token_id": 1}
    assert end_ids(entries, 10) == (3, 9)
    assert end_ids(entries, 9) == (3,)
    assert end_ids({"eos_token_id": True, "eot_token_id": -1, "eom_token_id": "4"}, 10) == ()


def test_special_tokens_are_named_by_text_or_object() -> None:
    assert token_text("<s>") == token_text({"content": "<s>", "lstrip": False}) == "<s>"
    for nothing in (None, "", {}, {"content": None}, 5, json.loads("[]")):
        assert token_text(nothing) is None
