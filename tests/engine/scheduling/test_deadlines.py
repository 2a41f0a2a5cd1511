"""Deadlines: who is past one ends before the step, wherever it is, and what it held is free."""

from __future__ import annotations

import pytest

from headrace.engine.params import SamplingParams
from headrace.engine.request import Request, State
from headrace.engine.scheduling.deadlines import FEWEST_SWEPT, Deadlines
from tests.engine.expected import answer
from tests.engine.mock import Clock, Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import prompt, request


def clock_of(core: object) -> Clock:
    return core._clock  # type: ignore[attr-defined,no-any-return]


def test_one_that_waits_ends_before_any_of_its_prompt_is_computed() -> None:
    model = MockModel()
    core = make_core(model, max_num_seqs=1)
    core.submit(submit("runs", prompt(5, 1), max_tokens=20))
    core.step()
    core.submit(submit("waits", prompt(9, 2), timeout_s=5.0))
    core.submit(submit("patient", prompt(9, 3), timeout_s=500.0))
    clock_of(core).now_s += 5.0
    results: dict[str, Collected] = {}
    collect(results, core.step())
    core.check()
    (output,) = results["waits"].outputs
    assert (output.finish_reason, output.token_ids, output.error) == ("timeout", [], None)
    drain(core, results)
    assert results["patient"].finish_reason == "length"
    assert not any(position == 8 and token == prompt(9, 2)[8] for position, token in model.computed)
    assert core.stats().timeouts == 1


@pytest.mark.parametrize("steps", [1, 3, 12])
def test_one_that_runs_keeps_what_it_said_and_its_blocks_are_free(steps: int) -> None:
    core = make_core(num_gpu_blocks_override=16, max_num_batched_tokens=16)
    late = submit("late", prompt(40, 1), max_tokens=100, timeout_s=5.0)
    core.submit(late)
    results: dict[str, Collected] = {}
    for _ in range(steps):
        collect(results, core.step())
    before = results["late"].token_ids if "late" in results else []
    clock_of(core).now_s += 5.0
    # It needs every block, those of the late one too.
    core.submit(submit("next", prompt(250, 2), max_tokens=2))
    collect(results, core.step())
    core.check()
    assert [each.request_id for each in core.scheduler.running] == ["next"]
    assert results["late"].finish_reason == "timeout"
    assert results["late"].token_ids == before == answer(late)[0][: len(before)]
    assert len(before) == max(0, steps - 2)
    drain(core, results)
    assert not core.has_work


def test_preempted_ones_and_those_that_wait_for_a_prefix_end_too() -> None:
    core = make_core(num_gpu_blocks_override=8, max_num_seqs=3)
    for i, name in enumerate("abc", 1):
        core.submit(submit(name, prompt(30, i), max_tokens=60, timeout_s=50.0))
    while not core.stats().num_preemptions:
        core.step()
    assert request(core, "c").state is State.WAITING
    core.submit(submit("shares", [*prompt(30, 3), 1], timeout_s=50.0))
    clock_of(core).now_s += 60.0
    outputs = core.step()
    assert [(output.request_id, output.finish_reason) for output in outputs] == [
        (name, "timeout") for name in ("a", "b", "c", "shares")
    ]
    assert core.kv.num_owned == 0
    assert core.stats().timeouts == 4
    assert not core.has_work


def test_whoever_ended_in_time_says_nothing_more_and_its_id_may_be_taken_again() -> None:
    core = make_core()
    for _ in range(2):
        core.submit(submit("a", prompt(5), timeout_s=1.0))
        results = drain(core)
        assert results["a"].finish_reason == "length"
    core.submit(submit("a", prompt(5), max_tokens=50))
    core.step()
    clock_of(core).now_s += 10.0
    assert drain(core)["a"].finish_reason == "length"
    assert core.stats().timeouts == 0


def test_the_heap_forgets_those_that_have_ended() -> None:
    deadlines = Deadlines()
    alive = []
    for arrival in range(20_000):
        one = Request(str(arrival), [1], 1, SamplingParams(), 2, arrival=arrival)
        deadlines.add(one, 1000.0 - arrival % 7)
        one.state = State.FINISHED
        if arrival % 1000 == 0:
            one.state = State.RUNNING
            alive.append(one)
        deadlines.sweep(len(alive))
        assert len(deadlines) <= FEWEST_SWEPT + 2 * len(alive)
    assert deadlines.passed(900.0) == []
    assert set(deadlines.passed(1000.0)) == set(alive)
    assert deadlines.passed(2000.0) == []


def test_an_idle_core_holds_no_request_for_its_deadline() -> None:
    core = make_core()
    for i in range(5):
        core.submit(submit(str(i), prompt(20, i), max_tokens=3, timeout_s=1e6))
    core.step()
    assert len(core._deadlines) == 5
    drain(core)
    assert len(core._deadlines) == 0
    core.submit(submit("cancelled", prompt(20), timeout_s=1e6))
    core.cancel("cancelled")
    core.step()
    assert len(core._deadlines) == 0


def test_sweeping_costs_a_request_little_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(
        "headrace.engine.scheduling.deadlines.heapify", lambda heap: sizes.append(len(heap))
    )
    deadlines = Deadlines()
    for arrival in range(10_000):
        one = Request(str(arrival), [1], 1, SamplingParams(), 2, arrival=arrival)
        deadlines.add(one, float(arrival))
        one.state = State.FINISHED if arrival >= 1000 else State.RUNNING
        deadlines.sweep(min(arrival + 1, 1000))
    assert 0 < sum(sizes) <= 10_000
