"""The prompts of a round: the same for everybody, under salts that nobody has sent before."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headrace.bench.load.tokenization import ClientTokenization, load_tokenization
from headrace.bench.providers.prompts import PromptSource
from headrace.errors import ConfigError
from tests.bench.providers.made import file, provider


@pytest.fixture(scope="module")
def tokenization() -> ClientTokenization:
    return load_tokenization(None)


def source(
    tokenization: ClientTokenization, folder: Path = Path(), **fields: object
) -> PromptSource:
    counter = itertools.count(1)
    of = file(provider("a"), **{"input_tokens": "20", "output_tokens": 4, **fields})
    return PromptSource(of, folder, tokenization, lambda: next(counter))


def bodies(items: object) -> list[str]:
    return [item.prompt.text.partition("\n")[2] for item in items]  # type: ignore[attr-defined]


def test_prompts_are_the_same_and_salts_are_not(tokenization: ClientTokenization) -> None:
    of = source(tokenization, single_requests=2, batch_size=5)
    first, second = of.round(), of.round()
    assert bodies(first.batch) == bodies(second.batch)
    assert bodies(first.single) == bodies(first.batch)[:2]
    everything = [*first.single, *first.batch, *second.single, *second.batch]
    texts = [item.prompt.text for item in everything]
    salts = {text.partition("\n")[0] for text in texts if text}
    assert len(salts) == len(everything)
    # Other salts in another process, the same prompts: a series goes on.
    assert source(tokenization, single_requests=2, batch_size=5).fingerprint == of.fingerprint
    assert first.batch[0].prompt.max_tokens == 4


def test_cached_sends_the_same_bytes_every_time(tokenization: ClientTokenization) -> None:
    of = source(tokenization, single_requests=2, batch_size=3, cached=True)
    assert of.round() == of.round()
    assert of.round().single == of.round().batch[:2]


def test_prompts_of_a_file_are_sent_again_where_they_are_too_few(
    tokenization: ClientTokenization, tmp_path: Path
) -> None:
    (tmp_path / "two.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n', encoding="utf-8")
    of = source(tokenization, tmp_path, dataset="two.jsonl", batch_size=3)
    assert bodies(of.round().batch) == ["one", "two", "one"]
    assert of.repeats


def test_texts_to_embed_are_refused(tokenization: ClientTokenization, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"input": "one"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="has texts to embed"):
        source(tokenization, tmp_path, dataset="e.jsonl")
