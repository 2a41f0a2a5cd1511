"""bad_words as ids, on the vocabularies of real models."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import RequestError
from headrace.server.bad_words import bad_word_ids
from tests.text.assets import vocabulary

WORDS = ["bad", "Paris", "xylophone", "größe", "水", "don't", "two words", "42", "e\u0301"]
VOCABULARIES = ["gpt-2 files", "llama3 ranks", "gpt-4o", "llama2 model", "gpt-neox json"]


def holds(ids: list[int], sequences: tuple[tuple[int, ...], ...]) -> bool:
    return any(tuple(ids[at : at + len(one)]) == one for one in sequences for at in range(len(ids)))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_word_is_found_at_the_beginning_and_after_a_space(shared_assets: Path, name: str) -> None:
    tokenizer = vocabulary(shared_assets, name)
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


def test_a_space_may_change_the_number_of_tokens(shared_assets: Path) -> None:
    """vLLM keeps the second way of writing a word only where both have as many tokens."""
    tokenizer = vocabulary(shared_assets, "gpt-2 files")
    lengths = {word: [len(one) for one in bad_word_ids([word], tokenizer)] for word in WORDS}
    assert any(len(set(counts)) == 2 for counts in lengths.values()), lengths


@pytest.mark.parametrize("name", VOCABULARIES)
def test_leading_space_does_not_matter_and_nothing_comes_twice(
    shared_assets: Path, name: str
) -> None:
    tokenizer = vocabulary(shared_assets, name)
    once = bad_word_ids(["word"], tokenizer)
    assert bad_word_ids([" word", "word", "\nword"], tokenizer) == once
    assert len(set(once)) == len(once)


@pytest.mark.parametrize("word", ["", " ", "\t \n"])
def test_a_word_without_tokens_is_refused(shared_assets: Path, word: str) -> None:
    with pytest.raises(RequestError) as caught:
        bad_word_ids(["fine", word], vocabulary(shared_assets, "gpt-2 files"))
    assert caught.value.param == "bad_words[1]"
    assert repr(word) in str(caught.value)
