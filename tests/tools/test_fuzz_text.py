"""The fuzzers of tokenizers and templates: some inputs of each, and that they do find things."""

from __future__ import annotations

import json
import random

import pytest

from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.tokenizer.data import TokenizerData
from tests.text.vocabularies import byte_level
from tools.fuzz import harness, templates, tokenizers


@pytest.fixture(autouse=True)
def _no_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_ASSETS", raising=False)


@pytest.mark.long
def test_tokenizers_keep_their_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "LONG_CHARS", 20_000)
    report = harness.run(tokenizers.make_target(), seed=1, iterations=150, limit_s=60)
    assert report.findings == {}
    assert report.outcomes["right"] > 100


@pytest.mark.parametrize("iterations", [40, pytest.param(150, marks=pytest.mark.long)])
def test_templates_keep_theirs(iterations: int) -> None:
    report = harness.run(templates.make_target(), seed=1, iterations=iterations, limit_s=60)
    assert report.findings == {}
    for outcome in ("TemplateError", "RequestError", "rendered", "protected"):
        assert report.outcomes[outcome] > (3 if iterations == 150 else 0), report.outcomes


def test_inputs_are_the_same_for_the_same_seed() -> None:
    for make in (tokenizers.make_target, templates.make_target):
        target = make()
        first = target.mutate(target.seeds, random.Random("1:2"))
        assert first == target.mutate(target.seeds, random.Random("1:2"))
        assert first != target.mutate(target.seeds, random.Random("1:3"))


def test_a_tokenizer_that_loses_something_is_found() -> None:
    arrays = byte_level(pre="qwen2")
    tokenizer = load_tokenizer(TokenizerData("gguf", gguf=arrays))
    decomposed = "e\u0301"
    tokenizers.check(tokenizers.Subject(tokenizer, nfc=True), decomposed, random.Random(0))
    with pytest.raises(AssertionError, match="decoded to"):
        tokenizers.check(tokenizers.Subject(tokenizer), decomposed, random.Random(0))


def test_a_wrong_stream_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(TokenizerData("gguf", gguf=byte_level()))
    subject = tokenizers.Subject(tokenizer)
    tokenizers.check(subject, "hello", random.Random(0))
    monkeypatch.setattr(Tokenizer, "fewest_tokens", lambda self, text: 10**6)
    with pytest.raises(AssertionError, match="fewest_tokens"):
        tokenizers.check(subject, "hello", random.Random(0))


def test_template_outcomes() -> None:
    def ended(template: str, **more: object) -> str:
        chat = {"messages": [{"role": "user", "content": "<"}], **more}
        return templates.attempt(json.dumps({"template": template, **chat}).encode())

    assert ended("{{ messages[0].role }}") == "rendered"
    assert ended("{{ messages[0].content }}") == "protected"
    assert ended("{{ 'a' * 10**9 }}") == "TemplateError"
    assert ended("x", messages=[5]) == "RequestError"
