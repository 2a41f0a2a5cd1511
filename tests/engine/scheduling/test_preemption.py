"""Who gives its blocks up when they run out, how often, and what it finds when it returns."""

from __future__ import annotations

import random

import pytest

from headrace.engine.request import RESERVE_AFTER_PREEMPTIONS
from tests.engine.expected import answer
from tests.engine.mock import Collected, MockModel, collect, drain, make_core, submit
from tests.engine.plans import names_of, plans_of, prompt, request


def test_the_youngest_is_preempted_to_the_head_and_nobody_enters_in_that_step() -> None:
    core = make_core(num_gpu_blocks_override=8, max_num_seqs=3)
    plans = plans_of(core)
    submits = [submit(name, prompt(30, i), max_tokens=60) for i, name in enumerate("abc", 1)]
    for each in submits:
        core.submit(each)
    results: dict[str, Collected] = {}
    collect(results, core.step())
    assert len(core.scheduler.running) == 3
    core.submit(submit("tiny", prompt(2, 4), max_tokens=1))
    while not plans[-1].num_preempted:
        collect(results, core.step())
        core.check()
    assert names_of(plans[-1]) == ["a", "b"]
    assert [each.request_id for each in core.scheduler.waiting] == ["c", "tiny"]
    assert request(core, "c").num_computed == 0
    assert request(core, "c").num_preemptions == 1
    drain(core, results)
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
    assert results["c"].outputs[-1].num_preemptions >= 1
    assert results["a"].outputs[-1].num_preemptions == 0
    assert core.stats().num_preemptions >= 1


def test_a_request_preempted_often_gets_its_full_length_and_is_left_alone() -> None:
    core = make_core(num_gpu_blocks_override=12)
    shapes = [(28, 36), (9, 50), (16, 135), (16, 117), (26, 73), (4, 144), (1, 119), (14, 20)]
    submits = [
        submit(str(i), prompt(length, i), max_tokens=max_tokens)
        for i, (length, max_tokens) in enumerate(shapes)
    ]
    for each in submits:
        core.submit(each)
    results: dict[str, Collected] = {}
    reserved_seen = False
    while core.has_work:
        collect(results, core.step())
        core.check()
        for each in core.scheduler.running:
            assert each.num_preemptions <= RESERVE_AFTER_PREEMPTIONS
            if each.num_preemptions == RESERVE_AFTER_PREEMPTIONS:
                reserved_seen = True
                assert len(each.tables[0].blocks) == core.kv.blocks_for(each.max_len)
    assert reserved_seen
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
        assert results[each.request_id].outputs[-1].num_preemptions <= RESERVE_AFTER_PREEMPTIONS


def test_a_reserved_request_is_no_victim_even_if_it_is_the_youngest() -> None:
    core = make_core(num_gpu_blocks_override=10)
    core.submit(submit("old", prompt(48, 1), max_tokens=80))
    core.submit(submit("reserved", prompt(16, 2), max_tokens=60))
    old, reserved = request(core, "old"), request(core, "reserved")
    reserved.num_preemptions = RESERVE_AFTER_PREEMPTIONS
    results = drain(core)
    assert (old.num_preemptions, reserved.num_preemptions) == (1, RESERVE_AFTER_PREEMPTIONS)
    assert [name for name in results if results[name].finish_reason] == ["old", "reserved"]
    assert results["old"].outputs[-1].num_preemptions == 1
    assert len(results["old"].token_ids) == 80


def test_nobody_is_admitted_in_a_step_that_preempts_even_if_there_were_room() -> None:
    core = make_core()
    plans = plans_of(core)
    for i, name in enumerate(("a", "b")):
        core.submit(submit(name, prompt(20, i), max_tokens=20))
    core.step()
    grow, refusals = core.kv.grow, iter([True])
    core.kv.grow = lambda one: not next(refusals, False) and grow(one)  # type: ignore[method-assign]
    core.submit(submit("new", prompt(20, 5), max_tokens=2))
    core.step()
    core.step()
    assert [names_of(plan) for plan in plans] == [["a", "b"], ["a"], ["a", "b", "new"]]


def test_a_resumed_request_finds_its_own_blocks_and_counts_no_second_hit() -> None:
    model = MockModel()
    core = make_core(model, num_gpu_blocks_override=8, max_num_seqs=2)
    submits = [submit(name, prompt(30, i), max_tokens=50) for i, name in enumerate("ab", 1)]
    for each in submits:
        core.submit(each)
    results = drain(core)
    assert results["b"].outputs[-1].num_preemptions == 1
    assert core.stats().prefix_hits_tokens == 0
    assert core.stats().prefix_queries_tokens == 60
    assert all(output.cached_tokens == 0 for output in results["b"].outputs)
    fresh = sum(30 + 50 - 1 for _ in submits)
    assert fresh < len(model.computed) < fresh + 40, "most of b's blocks were still cached"


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_nobody_enters_in_a_step_that_preempts(seed: int) -> None:
    rng = random.Random(seed)
    core = make_core(num_gpu_blocks_override=24, max_num_batched_tokens=32)
    plans = plans_of(core)
    beside_a_prompt = 0
    for i in range(40):
        length = rng.choice([4, 9, 200])
        core.submit(submit(str(i), prompt(length, i), max_tokens=rng.randint(1, 90)))
    while core.has_work:
        core.step()
        if plans[-1].num_preempted:
            assert not plans[-1].started
            beside_a_prompt += any(each.lag > 32 for each in core.scheduler.running)
    assert beside_a_prompt
