"""Tokenizers of strangers are refused at load where they explode on plain texts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CheckpointError, RequestError
from headrace.text import trial
from headrace.weights.tokenizer.pretokenizers import PRETOKENIZERS
from tests.text.test_library import write_and_load
from tests.text.vocabularies import from_json
from tests.tiny import tokenizer_json


@pytest.mark.parametrize("regex", [r"(a+)+$", r"(?:\s|\s\s)+!$", r"(?:qz|qzqz)+$", r"(?:1|11)+,"])
def test_an_expression_that_gives_up_is_found_at_load(tmp_path: Path, regex: str) -> None:
    with pytest.raises(CheckpointError, match=r"it fails on .*retry-limit-in-match"):
        write_and_load(tmp_path, regex)


@pytest.mark.long
def test_an_expression_that_takes_too_long_is_found_at_load(tmp_path: Path) -> None:
    begun_s = time.thread_time()
    with pytest.raises(CheckpointError, match=r"take it \d+\.\d s of CPU time; the limit is 0\.5"):
        write_and_load(tmp_path, r"a{0,10}a*a*b")
    assert time.thread_time() - begun_s < 20


def test_the_limit_of_time_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MAX_TRIAL_S", 0.0)
    with pytest.raises(CheckpointError, match=r"\d+ characters \(' +"):
        write_and_load(tmp_path, r"\p{L}+")


def test_an_expression_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a usable tokenizer"):
        write_and_load(tmp_path, "((((")


@pytest.mark.long
def test_all_rules_of_gguf_files_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_KNOWN", frozenset())
    for pattern in {pattern for rule in PRETOKENIZERS.values() for pattern in rule.patterns}:
        assert write_and_load(tmp_path, pattern).encode("a1", add_special_tokens=False) == [97, 49]


def replacing(folder: Path, *pairs: tuple[str, str]) -> Any:
    content = tokenizer_json()
    steps = [
        {"type": "Replace", "pattern": {"String": found}, "content": put} for found, put in pairs
    ]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return from_json(folder / "tokenizer.json")


def test_a_chain_of_replacements_is_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="can make a text 781250000000 times longer"):
        replacing(tmp_path, *[("a", "a" * 50)] * 7)


def test_a_text_that_a_normalizer_blows_up_is_refused(tmp_path: Path) -> None:
    tokenizer = replacing(tmp_path, ("a", "a" * 50), ("a", "a" * 20))
    assert len(tokenizer.encode("aab", add_special_tokens=False)) == 2001
    assert len(tokenizer.encode("b" * 50_000, add_special_tokens=False)) == 50_000
    assert tokenizer.encode("b\ud800", add_special_tokens=False) == [98, 0xEF, 0xBF, 0xBD]
    with pytest.raises(RequestError, match="makes it more than 16 times longer"):
        tokenizer.encode("a" * 100_000, add_special_tokens=False)
