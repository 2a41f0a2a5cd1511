"""How likely drafts of a model are right: by place, behind a change of the text, by probability."""

from __future__ import annotations

import pytest

from headrace.engine.drafts.passes.draft_chances import DraftChances
from headrace.engine.drafts.passes.draft_generator import RatedDraft
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request

RIGHT, WRONG = 1, 9


def request_of(name: str) -> Request:
    return Request(name, [0], 1, SamplingParams(temperature=0), 1 << 20)


def drafted(
    chances: DraftChances,
    request: Request,
    count: int,
    right: int,
    *,
    expected: float = 0.0,
    probabilities: tuple[float, ...] = (),
) -> None:
    """A step with so many drafts, of which so many came."""
    rated = [RatedDraft(RIGHT, each) for each in probabilities]
    chances.begin(request, [RIGHT] * count, wanted=count, expected=expected, rated=rated)
    came = [RIGHT] * right + [WRONG]
    chances.note(request, len(request.token_ids), came)
    request.token_ids += came


def test_places_are_learned_and_what_is_not_known_is_as_the_one_before() -> None:
    chances, request = DraftChances(3), request_of("r")
    for step in range(100):
        drafted(chances, request, 2, step % 2)  # the first is right every other time, no second
    first, second, third = chances.hopes(request, 3, 1.0)
    assert first == pytest.approx(0.5, abs=0.08)
    assert second - first < 0.05 and third - second < 0.01
    other = chances.hopes(request_of("like it"), 3, 1.0)
    assert other[0] == pytest.approx(0.5, abs=0.08)


def test_some_wrong_drafts_in_a_row_say_that_an_easy_text_has_become_hard() -> None:
    chances, request = DraftChances(1), request_of("r")
    for step in range(60):
        drafted(chances, request, 1, int(step % 10 > 0))
    before = chances.hopes(request, 1, 0.0)[0]
    assert before > 0.8
    for _ in range(3):
        drafted(chances, request, 1, 0)
    assert chances.hopes(request, 1, 0.0)[0] < 0.3
    # Bad luck is not to silence a draft where much was gained, nor for long where none is made.
    assert chances.hopes(request, 1, 1.0)[0] > 0.4
    request.token_ids += [WRONG] * 100
    assert chances.hopes(request, 1, 0.0)[0] > 0.7


def test_two_right_drafts_say_that_a_hard_text_has_become_easy() -> None:
    chances, request = DraftChances(1), request_of("r")
    for _ in range(60):
        drafted(chances, request, 1, 0)
    assert chances.hopes(request, 1, 1.0)[0] < 0.1
    for _ in range(2):
        chances.begin(request, [RIGHT], wanted=1)
        chances.note(request, len(request.token_ids), [RIGHT, RIGHT])
        request.token_ids += [RIGHT, RIGHT]
    assert chances.hopes(request, 1, 1.0)[0] > 0.5


def test_what_was_expected_too_high_is_expected_less() -> None:
    chances, request = DraftChances(1), request_of("r")
    even = DraftChances(1)
    for step in range(100):
        drafted(chances, request, 1, step % 2, expected=0.8)
        drafted(even, request, 1, step % 2, expected=0.5)
    assert chances.hopes(request, 1, 1.0)[0] < 0.8 * even.hopes(request, 1, 1.0)[0]


def test_a_draft_is_as_likely_as_others_of_its_probability() -> None:
    chances, request = DraftChances(2), request_of("r")
    assert chances.of(request, 0.35) == pytest.approx(0.35)
    for _ in range(100):
        drafted(chances, request, 1, 1, probabilities=(0.35,))
        drafted(chances, request, 1, 0, probabilities=(0.75,))
    assert chances.of(request, 0.32) > 0.9 and chances.of(request, 0.79) < 0.1
    assert chances.of(request, 0.95) == pytest.approx(0.95)


def test_one_that_was_left_out_is_compared_too_and_rows_are_expected_to_be_shorter() -> None:
    chances, request = DraftChances(2), request_of("r")
    for _ in range(100):
        rated = [RatedDraft(RIGHT, 0.9), RatedDraft(RIGHT, 0.1)]
        chances.begin(request, [RIGHT], wanted=2, rated=rated)
        chances.note(request, len(request.token_ids), [RIGHT, WRONG])
        request.token_ids += [RIGHT, WRONG]
    assert chances.of(request, 0.15) < 0.05
    assert chances.lengths(request, 2) == pytest.approx([1.0, 1.0], abs=0.1)
    assert chances.hopes(request, 2, 1.0)[1] < 1.1


def test_what_is_not_known_of_a_place_is_what_the_one_before_it_does() -> None:
    """Also where it is asked whether a row goes on to it."""
    chances, request = DraftChances(3), request_of("r")
    for _ in range(60):
        drafted(chances, request, 1, 1)
    assert chances.at(request, 0) > 0.9
    assert chances.at(request, 2) > 0.9
