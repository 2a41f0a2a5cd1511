"""Guesses from the request's own text."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headrace.engine.drafts.lookup._lookup import Text
from headrace.engine.drafts.lookup.prompt_lookup import PromptLookup
from headrace.engine.drafts.source import Guess
from tests.engine.drafts.test_speculation import request_of


def test_the_latest_place_of_the_longest_match_is_taken() -> None:
    source = PromptLookup(least_match=2, most_match=4)
    request = request_of([1, 2, 3, 4, 50, 9, 3, 4, 60, 8, 7, 1, 2, 3, 4])
    assert source.guess(request, 3) == Guess([50, 9, 3], 4)
    assert source.guess(request_of([3, 4, 50, 9, 3, 4, 60, 8, 7, 3, 4]), 2) == Guess([60, 8], 2)
    assert source.guess(request_of([1, 2, 3]), 4) is None
    assert source.guess(request_of([]), 4) is None


def test_a_text_that_repeats_itself_is_guessed_to_go_on_so() -> None:
    source = PromptLookup()
    guess = source.guess(request_of([5, 6, 7, 8, 7, 8]), 5)
    assert guess is not None and list(guess.token_ids) == [7, 8, 7, 8, 7]
    guess = source.guess(request_of([4, 4, 4]), 4)
    assert guess is not None and list(guess.token_ids) == [4, 4, 4, 4]


def test_lengths_that_cannot_be_are_refused() -> None:
    for lengths in ([], [0, 2], [4, 2], [2, 9]):
        with pytest.raises(ValueError, match="ascending and at most most_match"):
            Text(lengths, 8)
    text = Text([1], 8)
    assert text.guess([], 4) == ([], 0) and len(text) == 0


def plain_lookup(token_ids: list[int], lengths: Sequence[int], most: int) -> list[int] | None:
    """The slow twin: tries every length and every place."""
    for length in sorted(lengths, reverse=True):
        for end in range(len(token_ids) - 1, length - 1, -1):
            if token_ids[end - length : end] == token_ids[-length:]:
                text = list(token_ids)
                while len(text) < end + most:
                    text.append(text[end + len(text) - len(token_ids)])
                return text[end : end + most]
    return None


def test_a_place_once_found_goes_on_with_the_text() -> None:
    rng = random.Random(3)
    for _ in range(200):
        text = [rng.randrange(3) for _ in range(rng.randint(1, 30))]
        source, request = PromptLookup(2, 4), request_of(text)
        expected = plain_lookup(text, (2, 3, 4), 5)
        guess = source.guess(request, 5)
        assert (None if guess is None else list(guess.token_ids)) == expected
        if guess is None:
            continue
        # What was guessed comes: the same place is used, and the match is longer.
        request.token_ids += guess.token_ids[:2]
        later = source.guess(request, 3)
        assert later is not None and list(later.token_ids) == list(guess.token_ids[2:])
        assert later.match_tokens == guess.match_tokens + 2
        # Something else comes: the place is sought again.
        request.token_ids.append(9)
        assert source.guess(request, 3) is None
