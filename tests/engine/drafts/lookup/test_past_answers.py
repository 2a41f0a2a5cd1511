"""Guesses from answers of earlier requests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.engine.drafts.lookup.past_answers import INDEXED_TOKENS, PastAnswers
from headrace.engine.drafts.source import Guess
from tests.engine.drafts.test_speculation import request_of


def test_failed_answers_are_not_kept_and_others_can_be_dropped() -> None:
    source = PastAnswers()
    failed = request_of([0, *range(8)], prompt=1)
    failed.finish_reason = "error"
    source.forget(failed)
    assert source.guess(request_of(range(4)), 1) is None
    ended(source, range(8))
    assert source.guess(request_of(range(4)), 1) == Guess([4], 4)
    source.clear()
    assert source.guess(request_of(range(4)), 1) is None


def ended(source: PastAnswers, answer: Sequence[int], salt: str = "") -> None:
    forgotten(source, answer, salt)
    for _ in range(-(-len(answer) // INDEXED_TOKENS)):
        source.begin_step()


def forgotten(source: PastAnswers, answer: Sequence[int], salt: str = "") -> None:
    source.forget(request_of([0, *answer], prompt=1, salt=salt))


def test_past_answers_are_followed_within_their_salt() -> None:
    source = PastAnswers()
    ended(source, [1, 2, 3, 4, 5, 6, 7])
    request = request_of([9, 1, 2, 3, 4])
    assert source.guess(request, 2) == Guess([5, 6], 4)
    request.token_ids += [5, 6]
    assert source.guess(request, 9) == Guess([7], 6)
    request.token_ids.append(8)
    assert source.guess(request, 9) is None
    assert source.guess(request_of([1, 2, 3, 4], salt="other"), 2) is None


def test_the_oldest_answers_go_first_and_leave_no_place_behind() -> None:
    source = PastAnswers(most_tokens=16)
    for start in (0, 100, 200):
        ended(source, range(start, start + 8))
    assert source.guess(request_of(range(4)), 1) is None
    assert source.guess(request_of(range(100, 104)), 1) == Guess([104], 4)
    ended(source, range(300, 308))
    assert source.guess(request_of(range(200, 204)), 1) == Guess([204], 4)
    assert source.guess(request_of(range(300, 304)), 1) == Guess([304], 4)
    assert source.guess(request_of(range(100, 104)), 1) is None
    assert sum(part.num_tokens for part in source._parts) == source._num_tokens == 16


def test_what_most_answers_go_on_with_is_guessed() -> None:
    source = PastAnswers()
    for last in (7, 8, 7, 9):
        ended(source, [1, 2, 3, 4, last, last])
    assert source.guess(request_of([1, 2, 3, 4]), 2) == Guess([7, 7], 4)
    ended(source, [0, 1, 2, 3, 4, 5])
    assert source.guess(request_of([0, 1, 2, 3, 4]), 2) == Guess([5], 5)


def test_a_long_answer_is_entered_by_and_by() -> None:
    source, long = PastAnswers(), list(range(10 * INDEXED_TOKENS))
    forgotten(source, long)
    for _ in range(9):
        source.begin_step()
        assert source.guess(request_of(long[-6:-1]), 1) is None
    source.begin_step()
    assert source.guess(request_of(long[-6:-1]), 2) == Guess(long[-1:], 5)


def test_the_bound_holds_while_answers_are_entered() -> None:
    rng = random.Random(2)
    source = PastAnswers(most_tokens=300)
    for _ in range(300):
        answer = [rng.randrange(4) for _ in range(rng.randrange(400))]
        forgotten(source, answer, rng.choice(["", "a"]))
        source.begin_step()
        if rng.random() < 0.5:
            source.guess(request_of([1, 2, 3, 1]), 3)
        waiting = sum(len(each.token_ids) for each in source._pending)
        waiting -= len(source._pending[0].token_ids) if source._part is not None else 0
        assert waiting + sum(part.num_tokens for part in source._parts) == source._num_tokens
        assert source._num_tokens <= 300
