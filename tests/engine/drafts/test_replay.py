"""The controller replayed over recorded step times: what it may lose, and what it has to gain."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.speculation.recording import Recording, read_recording
from benchmarks.speculation.replay import PATTERNS, Phase, Replay, replayed
from headrace.engine.drafts.gain_account import BEGIN, INCOME, LEAST, MOST, GainAccount

RECORDING = read_recording(Path(__file__).parent / "step_times.json")
EASY_THEN_HARD = tuple(Phase(1, (chance,)) for chance in (0.9, 0.05, 0.9, 0.05))
"""Of one request, whose text changes."""


@pytest.mark.parametrize("name", ["1 stream, 0.05", "1 stream, 0.3", "1 stream, 0.9"])
def test_a_stream_is_never_below_off_and_near_its_best_length(name: str) -> None:
    found = replayed(RECORDING, PATTERNS[name], tokens_each=300)
    assert found.of_off > 0.995
    assert found.of_best > 0.95


def test_a_text_that_becomes_hard_costs_next_to_nothing() -> None:
    found = replayed(RECORDING, EASY_THEN_HARD, tokens_each=200)
    assert found.of_off > 1.3
    assert found.worst_of_off > 0.98
    assert found.of_best > 1.0


TEXTS = range(3)
"""How a pattern's texts are drawn: a choice that does well by luck does so once."""


@pytest.mark.load
@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_of_lookups_is_below_off(name: str) -> None:
    found = [replayed(RECORDING, PATTERNS[name], texts=texts) for texts in TEXTS]
    assert min(each.of_off for each in found) > 0.995
    assert min(each.worst_of_off for each in found) > 0.95
    assert fmean(each.of_best for each in found) > 0.92


@pytest.mark.load
@pytest.mark.parametrize("name", PATTERNS)
def test_drafts_of_a_model_lose_little_where_they_do_not_pay(name: str) -> None:
    # What is not drafted is not compared: a model is known by what its drafts cost.
    found = [replayed(RECORDING, PATTERNS[name], kind="model", texts=texts) for texts in TEXTS]
    assert fmean(each.of_off for each in found) > 0.985
    assert min(each.worst_of_off for each in found) > 0.92
    assert fmean(each.of_best for each in found) > 0.94


def test_drafts_of_a_model_that_never_come_cost_a_share_that_is_known() -> None:
    found = replayed(RECORDING, (Phase(1, (0.0,)),), kind="model", tokens_each=300)
    # What the account holds in the beginning (2 of 900 steps) and earns (0.3 %), and what tries are
    # credited with (0.5 steps and 0.3 %): 0.9 %, and the rest is the error of the step's time.
    assert found.of_off > 0.983


def test_what_a_pass_took_is_not_taken_off_a_later_step_without_drafts() -> None:
    replay = Replay(RECORDING, None, kind="model")
    replay.run(Phase(1, (0.9,)), 300)
    replay.run(Phase(8, (0.9,)), 30)
    # The first of 8 streams has no drafts, whatever the last of one had; one that was disturbed
    # makes it longer.
    plain_s = replay.plain_s(8)
    assert 0.8 * RECORDING.step_s(8, 8) < plain_s < 2 * RECORDING.step_s(8, 8)


def test_the_same_recording_gives_the_same() -> None:
    first, second = (replayed(RECORDING, EASY_THEN_HARD[:2], tokens_each=60) for _ in range(2))
    assert first == second


def test_between_recorded_sizes_a_step_is_on_a_line() -> None:
    recording = Recording({(1, 1): [1.0, 1.0, 9.0], (1, 5): [3.0], (4, 4): [2.0], (4, 8): [4.0]})
    assert recording.step_s(1, 1) == 1.0
    assert recording.step_s(1, 3) == 2.0
    assert recording.step_s(1, 9) == 5.0
    assert recording.step_s(4, 6) == 3.0
    # Two requests: a third of the way between one of one and of four, with as many drafts.
    assert recording.step_s(2, 4) == pytest.approx((2 * 2.0 + 3.0) / 3)


def test_the_account_bounds_what_is_lost() -> None:
    account = GainAccount()
    for _ in range(100):
        account.note(3.0, 0.5)
    assert account.steps == MOST
    lost = 0.0
    for _ in range(2000):
        price = 0.4
        if account.steps >= price:
            lost += price
            account.note(0.0, price)
        else:
            account.note_plain()
    assert lost <= MOST + 2000 * INCOME
    account.note(0.0, 50.0)
    assert account.steps == LEAST
    account = GainAccount()
    account.note_plain(0.02)  # what is kept ready for drafts that nobody takes
    assert account.steps == pytest.approx(BEGIN + INCOME - 0.02)
    for _ in range(1000):
        account.note_plain(0.02)
    assert account.steps == LEAST
