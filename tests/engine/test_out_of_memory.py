"""Memory that runs out in a step: computed in halves or put off, never ended, the same answers."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.plan import Row
from headrace.engine.step_memory import FIRST_PAUSE_S, MOST_PAUSE_S, RECOVER_STEPS, StepMemory
from headrace.errors import DeviceLostError, HeadraceError
from tests.engine.expected import answer
from tests.engine.mock import Collected, MockModel, MockOps, collect, drain, make_core, submit


def rows_of(*counts: int) -> list[Row]:
    request = Request("a", [0], 1, SamplingParams(), max_len=2)
    return [Row(request, 0, count, False) for count in counts]


@pytest.mark.parametrize("limit", [1, 3, 4, 7, 100])
def test_parts_are_all_rows_in_order_and_no_longer_than_the_limit(limit: int) -> None:
    memory = StepMemory(1000)
    rows = rows_of(1, 1, 5, 2, 1, 1, 1, 3)
    assert list(memory.parts(rows)) == [rows]
    memory.note_short(2 * limit)
    parts = list(memory.parts(rows))
    assert [row for part in parts for row in part] == rows
    for part in parts:
        assert sum(row.num_tokens for row in part) <= limit or len(part) == 1
    for each, other in pairwise(parts):
        assert sum(row.num_tokens for row in each) + other[0].num_tokens > limit


def test_the_limit_halves_and_comes_back_after_good_steps() -> None:
    memory = StepMemory(64)
    for tokens, limit in ((64, 32), (32, 16), (1, 1)):
        memory.note_short(tokens)
        assert memory.limit == limit
    limits = []
    while memory.limit is not None:
        for _ in range(RECOVER_STEPS):
            assert memory.note_step(was_short=False, computed=True) == 0
        limits.append(memory.limit)
    assert limits == [2, 4, 8, 16, 32, None]


def test_pauses_grow_while_nothing_can_be_computed() -> None:
    memory = StepMemory(64)
    memory.note_short(1)
    pauses = [memory.note_step(was_short=True, computed=False) for _ in range(9)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == MOST_PAUSE_S
    assert memory.note_step(was_short=False, computed=True) == 0
    assert memory.note_step(was_short=True, computed=False) == FIRST_PAUSE_S


@pytest.mark.parametrize("most", [1, 2, 5, 17])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_memory_there_is_every_answer_is_its_own(most: int, seed: int) -> None:
    """Prompts of many lengths, decodes beside them; memory grows and shrinks on the way."""
    rng = random.Random(seed)
    model = MockModel(most_tokens=most)
    core = make_core(model, max_num_batched_tokens=48)
    requests = [
        submit(f"r{i}", [rng.randrange(1, 40) for _ in range(rng.randint(1, 60))],
               max_tokens=rng.randint(1, 12), logprobs=rng.choice([None, 2]))
        for i in range(9)
    ]  # fmt: skip
    results: dict[str, Collected] = {}
    for number, request in enumerate(requests):
        core.submit(request)
        collect(results, core.step())
        core.check()
        model.most_tokens = most if number % 3 else 48
    drain(core, results)
    for request in requests:
        assert results[request.request_id].token_ids == answer(request)[0]
        assert results[request.request_id].finish_reason in ("length", "stop")
    stats = core.stats()
    assert stats.out_of_memory_steps > 0 and stats.num_preemptions == 0
    assert (
        stats.computed_tokens
        == sum(
            len(request.prompt_token_ids) + len(results[request.request_id].token_ids) - 1
            for request in requests
        )
        - stats.prefix_hits_tokens
    )


def test_while_others_hold_all_of_it_requests_wait_and_time_out_at_worst() -> None:
    pauses: list[float] = []
    model = MockModel()
    core = make_core(model, sleep=pauses.append)
    core.submit(submit("waits", [1, 2, 3], max_tokens=3))
    core.submit(submit("late", [4, 5], timeout_s=0.5))
    model.most_tokens = 0
    results: dict[str, Collected] = {}
    for _ in range(5000):
        collect(results, core.step())
        if "late" in results:
            break
    assert results["late"].finish_reason == "timeout"
    assert "waits" not in results
    assert pauses[:2] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S] and max(pauses) == MOST_PAUSE_S
    model.most_tokens = 8
    drain(core, results)
    assert results["waits"].token_ids == answer(submit("waits", [1, 2, 3], max_tokens=3))[0]


def test_a_step_of_one_token_has_to_fit_at_the_start() -> None:
    with pytest.raises(HeadraceError, match="no memory left for a step of one token: lower"):
        make_core(MockModel(most_tokens=0)).warm_up()


def test_blocks_are_copied_one_by_one_where_there_is_too_little_for_all() -> None:
    class Narrow(MockOps):
        def kv_copy(self, kv: Any, pairs: Any) -> None:
            if len(pairs) > 1:
                raise MemoryError("no memory for two blocks")
            super().kv_copy(kv, pairs)

    stem = list(range(1, 30))
    answers = []
    for ops in (MockOps(), Narrow()):
        core = make_core(ops=ops)
        core.submit(submit("first", stem, max_tokens=2))
        drain(core)
        for i in range(3):
            core.submit(submit(f"r{i}", [*stem, 30 + i], max_tokens=4))
        answers.append({name: each.token_ids for name, each in drain(core).items()})
    assert answers[0] == answers[1]


def test_a_lost_device_ends_the_engine_with_a_clear_line() -> None:
    """And no request by an error of its own: the supervisor answers them."""

    class Lost(MockOps):
        level = "cuda:0"

        def fault_of(self, error: Exception) -> str | None:
            return "lost"

    core = make_core(MockModel(raise_on=13), ops=Lost())
    core.submit(submit("a", [1, 2, 13]))
    with pytest.raises(DeviceLostError, match=r"the device cuda:0 is lost, .*this token cannot"):
        drain(core)
