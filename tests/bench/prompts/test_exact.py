"""Texts of exactly so many tokens, by tokenizers of every kind, and what is said where none is."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bench.prompts.exact import ATTEMPTS, PromptWriter
from headrace.bench.prompts.lengths import Fixed, Independent, Uniform
from headrace.bench.prompts.synthetic import synthetic
from headrace.bench.prompts.words import WORDS, Passages, RandomWords
from headrace.bench.workload import Tokenization
from headrace.errors import ConfigError
from tests.bench.prompts.tokenizers import EvenOnly, OfBytes, OfWords, named, shipped

LENGTHS = (1, 2, 3, 5, 33, 511, 512, 513)


@cache
def writer_of_shipped() -> PromptWriter:
    """One for all tests: it remembers what it has measured."""
    return PromptWriter(shipped())


def assert_exact(tokenization: Tokenization) -> None:
    writer, source = PromptWriter(tokenization), random.Random(1)
    for tokens in LENGTHS:
        drawn = writer.text(tokens, source)
        assert (drawn.tokens, len(tokenization.encode(drawn.text))) == (tokens, tokens)
        assert drawn.text == drawn.text.lstrip()
        assert len(writer.ids(tokens, source)) == tokens


@pytest.mark.parametrize("make", [shipped, OfBytes, OfWords])
def test_exact(make: type[OfWords]) -> None:
    assert_exact(make())


@pytest.fixture(params=["gpt-2", "qwen2", "llama-bpe", "llama-spm"])
def real(shared_assets: Path, request: pytest.FixtureRequest) -> Tokenization:
    """Of a real model."""
    return named(shared_assets, request.param)


def test_exact_with_real_vocabularies(real: Tokenization) -> None:
    assert_exact(real)


@settings(deadline=None, max_examples=25)
@given(tokens=st.integers(1, 700), seed=st.integers(0, 2**32))
def test_exact_at_any_length(tokens: int, seed: int) -> None:
    drawn = writer_of_shipped().text(tokens, random.Random(seed))
    assert len(shipped().encode(drawn.text)) == tokens


def test_the_head_counts() -> None:
    writer = writer_of_shipped()
    drawn = writer.text(64, random.Random(2), head="Answer this question:")
    assert drawn.text.startswith("Answer this question: ")
    assert len(shipped().encode(drawn.text)) == 64
    with pytest.raises(ConfigError, match="no room for the"):
        writer.text(3, random.Random(2), head="Answer this question, please:")


def test_lengths_that_cannot_be_had_are_reported() -> None:
    sizes = Independent(Uniform(20, 60), Fixed(5))
    made = synthetic(PromptWriter(EvenOnly()), 40, sizes, random.Random(3))
    odd = [at for at, item in enumerate(made) if (item.prompt_tokens_asked or 0) % 2]
    assert odd
    assert [one.index for one in made.missed if one.asked_tokens % 2] == odd
    for one in made.missed:
        assert len(EvenOnly().encode(made.items[one.index].prompt.text or "")) == one.got_tokens
        assert abs(one.got_tokens - one.asked_tokens) <= 3


def test_attempts_are_bounded() -> None:
    class Counting(EvenOnly):
        calls = 0

        def encode(self, text: str) -> list[int]:
            self.calls += 1
            return list(super().encode(text))

    tokenization = Counting()
    writer = PromptWriter(tokenization)
    writer.text(9, random.Random(4))
    assert writer.singles == ()
    before = tokenization.calls
    writer.text(9, random.Random(4))
    assert tokenization.calls - before <= ATTEMPTS + 2


def test_a_tokenizer_without_tokens_does_not_go_on_for_ever() -> None:
    class Nothing(OfBytes):
        def encode(self, text: str) -> list[int]:
            return []

    with pytest.raises(ConfigError, match="no tokens"):
        PromptWriter(Nothing()).ids(5, random.Random(1))
    assert PromptWriter(Nothing()).text(5, random.Random(1)).tokens == 0
    with pytest.raises(ConfigError, match="no tokens"):
        PromptWriter(Nothing()).distinct_ids(5)


@pytest.mark.parametrize("form", ["text", "token_ids", "inputs"])
@pytest.mark.parametrize("salted", [False, True])
def test_equal_seeds_make_equal_workloads(form: str, salted: bool) -> None:
    def made(seed: int, salt: int = 9) -> str:
        return synthetic(
            writer_of_shipped(),
            6,
            Independent(Uniform(20, 40), Fixed(8)),
            random.Random(seed),
            form=form,  # type: ignore[arg-type]
            salts=random.Random(salt) if salted else None,
        ).fingerprint

    assert made(5) == made(5)
    assert made(5) != made(6)
    assert (made(5) != made(5, 10)) is salted


def test_token_ids_are_exact_and_ordinary() -> None:
    sizes = Independent(Fixed(33), Fixed(4))
    made = synthetic(writer_of_shipped(), 3, sizes, random.Random(7), form="token_ids")
    for item in made:
        ids = item.prompt.token_ids or ()
        assert (len(ids), item.prompt_tokens_asked, item.output_tokens_asked) == (33, 33, 4)
        assert not any(shipped().tokenizer.is_special(one) for one in ids)
    assert made.missed == ()


def test_distinct_ids_stand_for_texts() -> None:
    ids = writer_of_shipped().distinct_ids(5000)
    assert len(ids) == len(set(ids)) == 5000
    assert not any(shipped().tokenizer.is_special(one) for one in ids)


def test_words_are_words_in_random_order() -> None:
    assert len(set(WORDS)) == len(WORDS) > 900
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
    drawn = RandomWords().draw(5000, random.Random(8))
    assert len(set(drawn)) > 850
    assert list(RandomWords().draw(100, random.Random(8))) == list(drawn[:100])


def test_passages_keep_their_order() -> None:
    text = "one two\n\nthree four"
    words = Passages(text)
    drawn = "".join(words.draw(9, random.Random(1)))
    assert "two\n\nthree four one two" in drawn
    longer = words.draw(30, random.Random(1))
    assert list(words.draw(7, random.Random(1))) == list(longer[:7])
    writer = PromptWriter(shipped(), words)
    assert len(shipped().encode(writer.text(50, random.Random(1)).text)) == 50
    assert writer.identity != writer_of_shipped().identity
    with pytest.raises(ConfigError, match="no words"):
        Passages(" \n ")


def test_no_requests() -> None:
    with pytest.raises(ConfigError, match="0 requests"):
        synthetic(PromptWriter(OfWords()), 0, Independent(Fixed(1), Fixed(1)), random.Random(1))
