"""bad_words as ids, on the vocabularies of real models."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import RequestError
from headrace.server.prompts.bad_words import bad_word_ids
from headrace.text import Tokenizer
from tests.text.assets import vocabulary

WORDS = ["bad", "Paris", "xylophone", "größe", "水", "don't", "two words", "42", "e\u0301"]
# Of ranks merges are made, which takes seconds for 100,000 tokens and more.
VOCABULARIES = [
    "gpt-2 files",
    pytest.param("llama3 ranks", marks=pytest.mark.matrix),
    pytest.param("gpt-4o", marks=pytest.mark.matrix),
    "llama2 model",
    "gpt-neox json",
]


def holds(ids: list[int], sequences: tuple[tuple[int, ...], ...]) -> bool:
    return any(tuple(ids[at : at + len(one)]) == one for one in sequences for at in range(len(ids)))


@pytest.fixture(scope="module", params=VOCABULARIES)
def tokenizer(shared_assets: Path, request: pytest.FixtureRequest) -> Tokenizer:
    return vocabulary(shared_assets, request.param)


def test_a_word_is_found_at_the_beginning_and_after_a_space(tokenizer: Tokenizer) -> None:
    for word in WORDS:
        sequences = bad_word_ids([word], tokenizer)
        assert all(sequences)
        spelled = {tokenizer.decode(one).strip() for one in sequences}
        assert spelled == {
            tokenizer.decode(tokenizer.encode(word, add_special_tokens=False)).strip()
        }
        for text in (word, f" {word}", f"say {word}", f"say {word}, please"):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert holds(ids, sequences), (word, text)
        assert not holds(tokenizer.encode("say good", add_special_tokens=False), sequences)


@pytest.fixture(scope="module")
def gpt_2(shared_assets: Path) -> Tokenizer:
    return vocabulary(shared_assets, "gpt-2 files")


def test_a_space_may_change_the_number_of_tokens(gpt_2: Tokenizer) -> None:
    """vLLM keeps the second way of writing a word only where both have as many tokens."""
    lengths = {word: [len(one) for one in bad_word_ids([word], gpt_2)] for word in WORDS}
    assert any(len(set(counts)) == 2 for counts in lengths.values()), lengths


def test_leading_space_does_not_matter_and_nothing_comes_twice(tokenizer: Tokenizer) -> None:
    once = bad_word_ids(["word"], tokenizer)
    assert bad_word_ids([" word", "word", "\nword"], tokenizer) == once
    assert len(set(once)) == len(once)


@pytest.mark.parametrize("word", ["", " ", "\t \n"])
def test_a_word_without_tokens_is_refused(gpt_2: Tokenizer, word: str) -> None:
    with pytest.raises(RequestError) as caught:
        bad_word_ids(["fine", word], gpt_2)
    assert caught.value.param == "bad_words[1]"
    assert repr(word) in str(caught.value)
