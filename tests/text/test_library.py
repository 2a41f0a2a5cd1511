"""Failures of the tokenizers library are errors of ours, panics included."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CheckpointError, RequestError
from headrace.text import library
from headrace.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, from_gguf, from_json
from tests.tiny import tokenizer_json

# In two ways, three letters at a time: exponential, and found by no run of one or two letters.
EXPLODING = r"(?:qzj|qzjqzj)+$"
EXPLODES = "qzj" * 60 + "!"


@pytest.fixture
def exploding(tmp_path: Path) -> Tokenizer:
    return write_and_load(tmp_path, EXPLODING)


def write_and_load(folder: Path, regex: str) -> Tokenizer:
    content = tokenizer_json()
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    steps = [split, {**content["pre_tokenizer"], "use_regex": False}]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return from_json(path)


def test_a_panic_over_a_text_is_an_error_that_describes_the_text(exploding: Tokenizer) -> None:
    assert exploding.encode("hi", add_special_tokens=False) == list(b"hi")
    text = f"ab {EXPLODES} <|im_end|>"
    ways: Any = (
        lambda: exploding.encode(text, add_special_tokens=True),
        lambda: exploding.encode(text, add_special_tokens=False, parse_special=False),
        lambda: exploding.encode_segments([(text, False), ("<|im_end|>", True)]),
    )
    for way in ways:
        with pytest.raises(RequestError, match="retry-limit-in-match") as caught:
            way()
        assert caught.value.code == "text_cannot_be_tokenized"
        assert "characters without white space has 181 characters, from character 3" in str(
            caught.value
        )
    assert exploding.encode("hi", add_special_tokens=False) == list(b"hi"), "it goes on"


def test_a_long_text_is_described_as_a_whole(exploding: Tokenizer) -> None:
    """It is tokenized in slices, and a conversation between its control tokens."""
    before = "ab cd\n" * 50_000
    text = f"{before}{EXPLODES} <|im_end|>"
    ways: Any = (
        lambda: exploding.encode(text, add_special_tokens=True),
        lambda: exploding.encode(text, add_special_tokens=False, parse_special=False),
        lambda: exploding.encode_segments([(text, False), ("<|im_end|>", True)]),
        lambda: exploding.encode_segments([("<|bos|>", True), (text[7:], False)]),
    )
    for way in ways:
        with pytest.raises(RequestError, match=f"181 characters, from character {len(before)}:"):
            way()
    with pytest.raises(RequestError, match=f"this text of {len(text)} characters"):
        ways[0]()


@pytest.mark.long
def test_a_run_of_blanks_too_long_for_the_rules_of_gguf_files_is_an_error() -> None:
    tokenizer = from_gguf(byte_level(pre="qwen2"))
    with pytest.raises(
        RequestError, match=r"run of white space has 12000000 characters, from character 1: "
    ):
        tokenizer.encode("y" + " " * 12_000_000 + "x", add_special_tokens=False)


def test_a_character_without_a_token_is_an_error_of_the_request(tmp_path: Path) -> None:
    content = tokenizer_json()
    content |= {"pre_tokenizer": None, "decoder": None, "added_tokens": []}
    content["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    tokenizer = from_json(path)
    assert tokenizer.encode("a", add_special_tokens=False) == [0]
    with pytest.raises(RequestError, match=r"Missing .*UNK"):
        tokenizer.encode("b", add_special_tokens=False)


def test_ids_that_no_token_can_have_are_no_text(exploding: Tokenizer) -> None:
    assert exploding.decode([104, 2**32, 2**80, -1]) == "h"


def test_what_does_not_come_from_the_library_passes() -> None:
    class OtherError(Exception):
        pass

    for error in (KeyboardInterrupt(), OtherError(), CheckpointError("x"), KeyError("x")):
        with pytest.raises(type(error)) as caught, library.encoding("a"):
            raise error
        assert caught.value is error
    with (
        pytest.raises(CheckpointError, match=r"m is not a usable tokenizer: (x{300})\.\.\.$"),
        library.building("m"),
    ):
        raise ValueError("x" * 5000)


def test_only_the_room_of_texts_imports_the_library() -> None:
    source = Path(library.__file__).parents[1]
    imports = re.compile(r"^\s*(?:from|import) tokenizers\b", re.MULTILINE)
    rooms = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if imports.search(path.read_text(encoding="utf-8"))
    }
    assert rooms == {"text"}


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("ab   cdef", "characters without white space has 4 characters, from character 5"),
        ("a" + " \n" * 5, "white space has 10 characters, from character 1"),
    ],
)
def test_the_longest_run_is_named(text: str, run: str) -> None:
    assert f"Its longest run of {run}: shorten it" in str(library.unsplittable(text, "why"))
    assert "longest" not in str(library.unsplittable("", "why"))
