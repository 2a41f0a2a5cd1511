"""Plans: exact arithmetic of times, lengths and faults, without a clock."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.mock.plan import DEFAULT_OUTPUT_TOKENS, Plan, Planner, Wanted
from headrace.bench.mock.settings import MockSettings

MS = 1_000_000


def plan(wanted: Wanted | None = None, number: int = 0, **settings: Any) -> Plan:
    return Planner(MockSettings(**settings)).plan(number, wanted or Wanted(1, 8))


@given(
    tokens=st.integers(1, 200),
    chunk=st.sampled_from([1, 2, 7, "uniform:1:5"]),
    reasoning=st.integers(0, 50),
    role=st.sampled_from(["at-once", "with-first", "none"]),
    number=st.integers(0, 1000),
)
def test_tpot_is_exact_however_tokens_are_gathered(
    tokens: int, chunk: str | int, reasoning: int, role: str, number: int
) -> None:
    made = plan(
        Wanted(1, tokens),
        number,
        ttft_ms=30,
        tpot_ms=4,
        tokens_per_chunk=chunk,
        reasoning_tokens=reasoning,
        role_chunk=role,
    )
    contents = [step for step in made.steps if step.kind != "role"]
    assert sum(step.tokens for step in contents) == tokens == made.output_tokens
    assert contents[0].offset_ns == 30 * MS
    assert contents[-1].offset_ns == (30 + 4 * (tokens - 1)) * MS == made.end_ns
    assert contents[0].tokens == 1
    for step in contents:
        assert (step.kind == "reasoning") == (step.first_token < reasoning)
    for before, after in pairwise(contents):
        assert before.first_token + before.tokens == after.first_token
    opening = [step.offset_ns for step in made.steps if step.kind == "role"]
    assert opening == {"at-once": [0], "with-first": [30 * MS], "none": []}[role]


def test_the_prompt_takes_time() -> None:
    made = plan(Wanted(500, 2), ttft_ms=10, ttft_per_token_us=20, role_chunk="none")
    assert made.steps[0].offset_ns == 20 * MS


@pytest.mark.parametrize(
    ("wanted", "output_tokens", "length", "reason"),
    [
        (Wanted(1), "", DEFAULT_OUTPUT_TOKENS, "stop"),
        (Wanted(1, 9), "", 9, "length"),
        (Wanted(1), "20", 20, "stop"),
        (Wanted(1, 9), "20", 9, "length"),
        (Wanted(1, 90), "20", 20, "stop"),
        (Wanted(1, 90, min_tokens=40), "20", 40, "stop"),
        (Wanted(1, 90, ignore_eos=True), "20", 90, "length"),
    ],
)
def test_length_is_what_was_asked_unless_the_model_ends_before(
    wanted: Wanted, output_tokens: str, length: int, reason: str
) -> None:
    made = plan(wanted, output_tokens=output_tokens)
    assert (made.output_tokens, made.finish_reason) == (length, reason)


def test_a_stall_moves_what_follows_and_nothing_else() -> None:
    calm = plan(Wanted(1, 20))
    stalled = plan(Wanted(1, 20), stall_rate=1, stall_ms=700)
    late = [b.offset_ns - a.offset_ns for a, b in zip(calm.steps, stalled.steps, strict=True)]
    assert sorted(late) == late
    assert set(late) == {0, 700 * MS}


def test_jitter_does_not_add_up_and_keeps_the_order() -> None:
    made = plan(Wanted(1, 2000), tpot_ms=1, jitter_ms=2, role_chunk="none")
    exact = plan(Wanted(1, 2000), tpot_ms=1, role_chunk="none")
    off = [b.offset_ns - a.offset_ns for a, b in zip(exact.steps, made.steps, strict=True)]
    assert off[0] == 0
    assert any(off)
    assert max(abs(one) for one in off[-100:]) < 20 * MS
    assert all(a.offset_ns <= b.offset_ns for a, b in pairwise(made.steps))


def test_faults_come_at_their_rates_and_in_the_middle() -> None:
    planner = Planner(MockSettings(errors=(("429", 0.2), ("truncated", 0.3)), seed=5))
    made = [planner.plan(number, Wanted(1, 10)) for number in range(3000)]
    shares = Counter(one.fault for one in made)
    assert abs(shares["429"] / 3000 - 0.2) < 0.03
    assert abs(shares["truncated"] / 3000 - 0.3) < 0.03
    places = {one.fault_step for one in made}
    assert places == set(range(2, 11))  # behind the role and the first content, before the last


def test_a_request_depends_on_the_seed_and_its_number_alone() -> None:
    program: dict[str, Any] = {
        "ttft_ms": "normal:50:20",
        "tpot_ms": "lognormal:5:1",
        "jitter_ms": 1,
        "tokens_per_chunk": "uniform:1:4",
    }
    one = Planner(MockSettings(seed=3, **program))
    other = Planner(MockSettings(seed=3, **program))
    other.plan(0, Wanted(1, 50))
    assert one.plan(7, Wanted(1, 50)) == other.plan(7, Wanted(1, 50))
    assert one.plan(7, Wanted(1, 50)) != one.plan(8, Wanted(1, 50))
    assert Planner(MockSettings(seed=4, **program)).plan(7, Wanted(1, 50)) != one.plan(
        7, Wanted(1, 50)
    )
