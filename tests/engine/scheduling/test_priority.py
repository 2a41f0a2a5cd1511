"""Who comes first by priority: in queue and budget, when room runs out, and by displacing."""

from __future__ import annotations

import random

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.kv.lookup import Match
from headrace.engine.request import RESERVE_AFTER_PREEMPTIONS, Request, State
from headrace.engine.scheduling.scheduler import MAX_LOOKED_AT
from headrace.errors import RequestError
from tests.engine.expected import answer
from tests.engine.mock import Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import names_of, plans_of, prompt, request, sizes_of

FLOODS = pytest.mark.parametrize(
    ("flood", "kept"), [(800, 100), pytest.param(2000, 200, marks=pytest.mark.load)]
)
"""How many requests arrive at once, and how many of them are not cancelled."""


def waiting_of(core: EngineCore) -> list[str]:
    return [each.request_id for each in core.scheduler.waiting]


def running_of(core: EngineCore) -> list[str]:
    return [each.request_id for each in core.scheduler.running]


def test_lower_numbers_enter_first_and_equals_in_order_of_arrival() -> None:
    core = make_core(scheduling_policy="priority", max_num_seqs=1)
    core.submit(submit("first", prompt(5, 0), priority=-9))
    core.step()
    for name, priority in (("c", 3), ("a", -2), ("d", 3), ("b", 0), ("e", 4)):
        core.submit(submit(name, prompt(5, ord(name)), priority=priority))
    assert waiting_of(core) == ["a", "b", "c", "d", "e"]
    results = drain(core)
    assert list(results) == ["first", "a", "b", "c", "d", "e"]
    assert core.stats().num_preemptions == 0


def test_fcfs_refuses_a_priority_and_nothing_is_queued() -> None:
    core = make_core()
    with pytest.raises(RequestError, match="priority") as caught:
        core.submit(submit("a", prompt(5), priority=1))
    assert caught.value.param == "priority"
    assert not core.has_work


def test_a_lower_number_takes_the_slot_of_the_last_in_rank() -> None:
    core = make_core(scheduling_policy="priority", max_num_seqs=3)
    plans = plans_of(core)
    submits = {
        name: submit(name, prompt(20, i), max_tokens=30, priority=priority)
        for i, (name, priority) in enumerate((("x", 1), ("y", 5), ("z", 5)))
    }
    for each in submits.values():
        core.submit(each)
    results: dict[str, Collected] = {}
    for _ in range(3):
        collect(results, core.step())
    submits["urgent"] = submit("urgent", prompt(20, 9), max_tokens=3, priority=4)
    submits["equal"] = submit("equal", prompt(20, 8), max_tokens=3, priority=5)
    core.submit(submits["equal"])
    core.submit(submits["urgent"])
    collect(results, core.step())
    core.check()
    assert names_of(plans[-1]) == ["x", "y", "urgent"], "z was the last in rank"
    assert running_of(core) == ["x", "urgent", "y"]
    assert waiting_of(core) == ["z", "equal"], "who has run comes before its equals"
    assert results["urgent"].outputs, "its first token came with that step"
    assert core.stats().preemption_reasons == {"priority": 1}
    computed = len(core._model.computed)  # type: ignore[attr-defined]
    drain(core, results)
    for name, each in submits.items():
        assert results[name].token_ids == answer(each)[0]
    assert results["z"].outputs[-1].num_preemptions == 1
    assert results["y"].outputs[-1].num_preemptions == 0
    again = len(core._model.computed) - computed - (2 + 26 + 26 + 26 + 22)  # type: ignore[attr-defined]
    assert again < 23, "z found its blocks cached"


def test_equals_are_never_displaced() -> None:
    core = make_core(scheduling_policy="priority", max_num_seqs=1)
    core.submit(submit("a", prompt(20, 1), max_tokens=10, priority=2))
    core.step()
    core.submit(submit("b", prompt(20, 2), max_tokens=10, priority=2))
    drain(core)
    assert core.stats().num_preemptions == 0


def test_a_lower_number_takes_blocks_of_no_more_than_are_needed() -> None:
    core = make_core(scheduling_policy="priority", num_gpu_blocks_override=13)
    for i, name in enumerate("abc"):
        core.submit(submit(name, prompt(50, i), max_tokens=10, priority=5))
    core.step()
    core.step()
    assert running_of(core) == ["a", "b", "c"]
    core.submit(submit("urgent", prompt(60, 9), max_tokens=4, priority=0))
    core.step()
    core.check()
    assert running_of(core) == ["urgent", "a", "b"]
    assert core.stats().preemption_reasons == {"priority": 1}
    assert all(len(each.token_ids) for each in drain(core).values())


def test_nobody_goes_where_all_that_may_go_are_too_few() -> None:
    core = make_core(scheduling_policy="priority", num_gpu_blocks_override=12)
    core.submit(submit("large", prompt(60, 1), max_tokens=60, priority=0))
    core.submit(submit("small", prompt(20, 2), max_tokens=20, priority=9))
    core.step()
    core.submit(submit("urgent", prompt(150, 3), max_tokens=4, priority=1))
    core.submit(submit("behind", prompt(3, 4), max_tokens=4, priority=2))
    for _ in range(5):
        core.step()
        assert running_of(core) == ["large", "small"]
        assert waiting_of(core) == ["urgent", "behind"], "and it lets nobody pass"
    drain(core)
    assert core.stats().num_preemptions == 0


def test_a_shared_block_is_no_gain_and_its_holder_is_not_sent_away_for_it() -> None:
    core = make_core(scheduling_policy="priority", num_gpu_blocks_override=10)
    stem = prompt(64, 1)
    core.submit(submit("first", [*stem, 1], max_tokens=60, priority=0))
    core.step()
    core.step()
    core.submit(submit("sharer", [*stem, 2], max_tokens=10, priority=9))
    core.step()
    assert running_of(core) == ["first", "sharer"]
    # Free are 4 of 10; the sharer alone holds 1, and 4 with the other.
    core.submit(submit("urgent", prompt(90, 5), max_tokens=4, priority=5))
    core.step()
    assert running_of(core) == ["first", "sharer"]
    drain(core)


def test_a_reserved_request_is_not_displaced() -> None:
    core = make_core(scheduling_policy="priority", max_num_seqs=1)
    core.submit(submit("low", prompt(20, 1), max_tokens=60, priority=9))
    results: dict[str, Collected] = {}
    for round_ in range(RESERVE_AFTER_PREEMPTIONS + 2):
        while request(core, "low").state is State.WAITING or request(core, "low").lag > 1:
            collect(results, core.step())
            core.check()
        core.submit(submit(f"urgent{round_}", prompt(9, 30 + round_), max_tokens=2))
        collect(results, core.step())
        core.check()
        displaced = request(core, "low").state is State.WAITING
        assert displaced == (round_ < RESERVE_AFTER_PREEMPTIONS)
    drain(core, results)
    assert results["low"].outputs[-1].num_preemptions == RESERVE_AFTER_PREEMPTIONS
    assert core.stats().preemption_reasons == {"priority": RESERVE_AFTER_PREEMPTIONS}


def test_the_victim_of_a_growing_request_is_the_last_in_rank_not_the_youngest() -> None:
    core = make_core(scheduling_policy="priority", num_gpu_blocks_override=8, max_num_seqs=3)
    core.submit(submit("low", prompt(30, 1), max_tokens=60, priority=3))
    core.submit(submit("b", prompt(30, 2), max_tokens=60))
    core.submit(submit("c", prompt(30, 3), max_tokens=60))
    results: dict[str, Collected] = {}
    while not core.stats().num_preemptions:
        collect(results, core.step())
        core.check()
    assert request(core, "low").state is State.WAITING
    assert core.stats().preemption_reasons == {"blocks": 1}
    drain(core, results)


def test_the_budget_goes_to_a_more_urgent_prompt_before_one_half_computed() -> None:
    core = make_core(
        scheduling_policy="priority", num_gpu_blocks_override=200, max_num_batched_tokens=32
    )
    plans = plans_of(core)
    core.submit(submit("long", prompt(200, 1), max_tokens=2, priority=5))
    core.step()
    core.submit(submit("urgent", prompt(70, 2), max_tokens=2, priority=1))
    core.submit(submit("later", prompt(5, 3), max_tokens=2, priority=7))
    for _ in range(4):
        core.step()
    assert sizes_of(plans)[1:] == [
        [("urgent", 32)],
        [("urgent", 32)],
        [("urgent", 6), ("long", 26)],
        [("urgent", 1), ("long", 31)],
    ]
    assert "later" in waiting_of(core), "what comes after it does not pass a long prompt"
    drain(core)


def test_nobody_waits_for_a_prefix_that_one_behind_it_computes() -> None:
    model = MockModel()
    core = make_core(
        model, scheduling_policy="priority", num_gpu_blocks_override=100, max_num_batched_tokens=16
    )
    stem = prompt(100, 1)
    core.submit(submit("low", [*stem, 1], max_tokens=2, priority=9))
    core.step()
    urgent = submit("urgent", [*stem, 2], max_tokens=2, priority=1)
    equal = submit("equal", [*stem, 3], max_tokens=2, priority=9)
    core.submit(urgent)
    core.submit(equal)
    core.step()
    assert running_of(core) == ["urgent", "low"]
    assert waiting_of(core) == ["equal"]
    results = drain(core)
    assert results["urgent"].outputs[0].cache_miss == "in_flight at token 16"
    for each in (urgent, equal):
        assert results[each.request_id].token_ids == answer(each)[0]
    order = [name for name in results if results[name].finish_reason]
    assert order[0] == "urgent"


def test_no_place_is_taken_that_would_get_no_budget() -> None:
    core = make_core(scheduling_policy="priority", max_num_seqs=2, max_num_batched_tokens=2)
    for name in "ab":
        core.submit(submit(name, prompt(2, ord(name)), max_tokens=10, priority=5))
    while any(each.lag > 1 for each in core.scheduler.running) or waiting_of(core):
        core.step()
    core.submit(submit("urgent", prompt(3, 9), max_tokens=1, priority=1))
    core.step()
    assert running_of(core) == ["a", "b"], "their decodes take all of the step"
    drain(core)


@FLOODS
def test_in_a_flood_a_step_looks_at_few_of_those_that_wait_for_a_prefix(
    flood: int, kept: int
) -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_seqs=64, max_num_batched_tokens=8)
    finds: list[str] = []
    find = core.kv.find

    def counted(request: Request, num_tokens: int = 0) -> Match:
        finds.append(request.request_id)
        return find(request, num_tokens)

    core.kv.find = counted  # type: ignore[assignment,method-assign]
    for i in range(flood):
        core.submit(submit(str(i), [*prompt(64, 1), i % 40, i // 40 % 40], max_tokens=1))
    for _ in range(3):
        finds.clear()
        core.step()
        assert len(finds) <= 2 * MAX_LOOKED_AT
    assert core.stats().num_deferred == MAX_LOOKED_AT
    for i in range(kept, flood):
        core.cancel(str(i))
    results = drain(core)
    assert len(results) == flood


@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 15), (1, 15), *(pytest.param(seed, 60, marks=pytest.mark.load) for seed in range(8))],
)
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_every_request_ends_and_is_preempted_a_bounded_number_of_times(
    seed: int, count: int, policy: str
) -> None:
    rng = random.Random(seed)
    core = make_core(
        scheduling_policy=policy,
        num_gpu_blocks_override=rng.randint(8, 20),
        max_num_batched_tokens=rng.choice([1, 4, 64]),
        max_num_seqs=rng.randint(1, 8),
    )
    submits = [
        submit(
            str(i),
            prompt(rng.randint(1, 60), i % 4),
            max_tokens=rng.randint(1, 60),
            priority=rng.randint(-3, 3) if policy == "priority" else 0,
        )
        for i in range(count)
    ]
    results: dict[str, Collected] = {}
    pending = list(submits)
    for _ in range(20_000):
        if pending and rng.random() < 0.3:
            core.submit(pending.pop(0))
        if not core.has_work and not pending:
            break
        collect(results, core.step())
        core.check()
        for each in core.scheduler.running:
            assert each.num_preemptions <= RESERVE_AFTER_PREEMPTIONS
    for each in submits:
        got = results[each.request_id]
        assert (got.token_ids, got.finish_reason) == answer(each)
        assert got.outputs[-1].num_preemptions <= RESERVE_AFTER_PREEMPTIONS
    stats = core.stats()
    assert stats.num_preemptions == sum(stats.preemption_reasons.values())
    assert set(stats.preemption_reasons) <= (
        {"blocks", "priority"} if policy == "priority" else {"blocks"}
    )


@pytest.mark.parametrize("seed", range(4))
def test_equal_priorities_plan_what_fcfs_plans(seed: int) -> None:
    planned = []
    for policy, priority in (("fcfs", 0), ("priority", 3)):
        rng = random.Random(seed)
        core = make_core(
            scheduling_policy=policy, num_gpu_blocks_override=14, max_num_batched_tokens=24
        )
        plans = plans_of(core)
        for i in range(25):
            length, new = rng.randint(1, 60), rng.randint(1, 50)
            core.submit(submit(str(i), prompt(length, i % 5), max_tokens=new, priority=priority))
            for _ in range(rng.randint(0, 4)):
                core.step()
        drain(core)
        planned.append(sizes_of(plans))
    assert planned[0] == planned[1]


@FLOODS
def test_in_a_flood_of_urgent_ones_a_step_looks_at_few_that_wait_for_a_prefix(
    flood: int, kept: int
) -> None:
    core = make_core(
        scheduling_policy="priority", num_gpu_blocks_override=200, max_num_seqs=64,
        max_num_batched_tokens=512,
    )  # fmt: skip
    core.submit(submit("idle", prompt(5, 3), max_tokens=500, priority=9))
    # Its rows bound its chunks, so that budget is left for those that wait for what it computes.
    core.submit(submit("reads", prompt(640, 1), prompt_logprobs=0))
    core.step()
    looked_up: list[str] = []
    look_up = core.scheduler._look_up

    def counted(one: object) -> object:
        looked_up.append(one.request_id)  # type: ignore[attr-defined]
        return look_up(one)  # type: ignore[arg-type]

    core.scheduler._look_up = counted  # type: ignore[assignment,method-assign]
    weighed: list[object] = []
    room_for = core.scheduler._room_for
    core.scheduler._room_for = lambda *one: weighed.append(one) or room_for(*one)  # type: ignore[func-returns-value,method-assign]
    for i in range(flood):
        core.submit(submit(str(i), [*prompt(640, 1), i % 40, i // 40 % 40], max_tokens=1))
    for _ in range(4):
        looked_up.clear()
        core.step()
        assert len(looked_up) <= 3 * (MAX_LOOKED_AT + 1)
    assert running_of(core) == ["reads", "idle"]
    assert not weighed, "of whoever waits nobody asks what runs, which costs as much as what runs"
    for i in range(kept, flood):
        core.cancel(str(i))
    assert len(drain(core)) == flood + 2


def test_blocks_that_the_urgent_one_shares_with_its_victim_are_no_gain() -> None:
    core = make_core(
        scheduling_policy="priority", num_gpu_blocks_override=12, max_num_batched_tokens=512
    )
    shared = prompt(66, 1)
    core.submit(submit("early", prompt(40, 2), max_tokens=8, priority=5))
    core.submit(submit("shares", shared, max_tokens=10, priority=9))
    core.step()
    core.step()
    wanted = submit("urgent", [*shared[:64], *prompt(70, 3)], max_tokens=2)
    core.submit(wanted)
    results: dict[str, Collected] = {}
    collect(results, core.step())
    core.check()
    assert running_of(core) == ["urgent"], "one block of the last in rank alone was too few"
    drain(core, results)
    assert results["urgent"].token_ids == answer(wanted)[0]
    assert results["urgent"].outputs[0].cached_tokens == 64
