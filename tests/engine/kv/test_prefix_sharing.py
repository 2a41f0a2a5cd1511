"""Prefixes are computed once: by whoever is there first, and by the next if that one goes."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request, State
from headrace.engine.scheduling.scheduler import Scheduler
from tests.engine.expected import answer
from tests.engine.mock import (
    EOS,
    NUM_TOKENS,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    submit,
)
from tests.engine.plans import given

PREFIX = [(5 * i + i // 11) % 40 for i in range(512)]


def large_core(model: MockModel, **settings: object) -> EngineCore:
    chosen: dict[str, object] = {
        "num_gpu_blocks_override": 512,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 96,
        **settings,
    }
    return make_core(model, **chosen)


def tails(count: int) -> list[list[int]]:
    return [[(i + j) % 40 for j in range(1 + i % 5)] for i in range(count)]


def test_a_prefix_of_512_tokens_shared_by_32_requests_is_computed_once() -> None:
    model = MockModel()
    core = large_core(model)
    submits = [submit(str(i), PREFIX + tail) for i, tail in enumerate(tails(32))]
    for each in submits:
        core.submit(each)
    results = drain(core)
    computed = Counter(position for position, _ in model.computed)
    assert all(computed[position] == 1 for position in range(512))
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
    cached = [results[str(i)].outputs[0].cached_tokens for i in range(32)]
    assert cached == [0] + [512] * 31
    assert core.stats().prefix_hits_tokens == 31 * 512


@pytest.mark.parametrize("steps", range(1, 12))
def test_when_the_first_is_cancelled_another_goes_on_from_where_it_was(steps: int) -> None:
    model = MockModel()
    core = large_core(model)
    submits = [submit(str(i), PREFIX + tail) for i, tail in enumerate(tails(32))]
    for each in submits:
        core.submit(each)
    results: dict[str, Collected] = {}
    for _ in range(steps):
        collect(results, core.step())
        core.check()
    core.cancel("0")
    core.check()
    drain(core, results)
    for each in submits[1:]:
        assert results[each.request_id].token_ids == answer(each)[0]
    # Only tokens of a block that was not full yet are computed again.
    computed = Counter(position for position, _ in model.computed)
    assert sum(computed[position] for position in range(512)) < 512 + 16


@pytest.mark.parametrize("budget", [96, 600])
@pytest.mark.parametrize("windows", [(0,), (40,), (0, 40), (40, 70)])
def test_when_the_first_fails_the_next_computes_it_anew(
    budget: int, windows: tuple[int, ...]
) -> None:
    spoiled = NUM_TOKENS + 1
    model = MockModel(nan_on=spoiled, windows=windows)
    core = large_core(model, max_num_batched_tokens=budget)
    core.submit(submit("bad", [*PREFIX, spoiled]))
    good = [submit(str(i), PREFIX + tail) for i, tail in enumerate([[1], [2, 3]])]
    for each in good:
        core.submit(each)
    results = drain(core)
    assert results["bad"].finish_reason == "error"
    for each in good:
        assert results[each.request_id].token_ids == answer(each, windows=windows)[0]
    # What a failed request computed is kept for nobody.
    assert Counter(position for position, _ in model.computed)[0] == 2


def test_in_flight_prefix_with_preemption_of_who_computes_it() -> None:
    model = MockModel()
    core = make_core(model, num_gpu_blocks_override=24, max_num_seqs=8, max_num_batched_tokens=64)
    submits = [
        submit(str(i), PREFIX[:100] + tail, max_tokens=120) for i, tail in enumerate(tails(8))
    ]
    for each in submits:
        core.submit(each)
    results = drain(core)
    assert core.stats().num_preemptions
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]


def bare(name: str, token_ids: list[int], arrival: int) -> Request:
    params = SamplingParams(temperature=0, max_tokens=4)
    return Request(name, list(token_ids), len(token_ids), params, len(token_ids) + 4,
                   arrival=arrival)  # fmt: skip


@pytest.mark.parametrize("end", ["abort", "error"])
def test_who_waits_takes_over_when_the_promise_breaks_in_the_middle_of_a_step(end: str) -> None:
    kv = KVCache(32, 16)
    scheduler = Scheduler(kv, max_num_batched_tokens=128, max_num_seqs=4)
    first, second = bare("first", PREFIX[:64], 0), bare("second", [*PREFIX[:64], 1], 1)
    other = bare("other", [9] * 20, 2)
    for each in (first, second, other):
        scheduler.submit(each)
    plan = scheduler.schedule(0.0)
    assert [row.request for row in plan.rows] == [first, other], "who shares nothing passes by"
    assert second.waits_for is not None and second.waits_for.pending
    scheduler.finish(first, end)  # type: ignore[arg-type]
    assert not second.waits_for.pending
    scheduler.complete(plan, given([None, 3]), 0.0)
    kv.check(scheduler.running)
    plan = scheduler.schedule(1.0)
    assert [(row.request, row.start) for row in plan.rows] == [(other, 20), (second, 0)]
    assert list(scheduler.waiting) == []


def test_cancelling_who_waits_for_a_prefix_leaves_the_others_alone() -> None:
    kv = KVCache(32, 16)
    scheduler = Scheduler(kv, max_num_batched_tokens=128, max_num_seqs=4)
    first, second = bare("first", PREFIX[:64], 0), bare("second", [*PREFIX[:64], 1], 1)
    scheduler.submit(first)
    scheduler.submit(second)
    plan = scheduler.schedule(0.0)
    scheduler.finish(second, "abort")
    scheduler.complete(plan, given([5]), 0.0)
    assert (second.state, second.waits_for) == (State.FINISHED, None)
    assert first.num_computed == 64
    kv.check(scheduler.running)


def test_blocks_are_shared_only_under_the_same_salt() -> None:
    model = MockModel()
    core = large_core(model)
    for name, salt in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "")):
        core.submit(submit(name, [*PREFIX[:64], 3], cache_salt=salt))
        results = drain(core)
        expected = 64 if name == "c" else 0
        assert results[name].outputs[0].cached_tokens == expected
    assert core.stats().miss_reasons == {"empty": 1, "salt": 2}


def test_output_blocks_are_shared_with_the_next_turn() -> None:
    core = large_core(MockModel())
    first = submit("first", PREFIX[:20], max_tokens=60)
    core.submit(first)
    reply = drain(core)["first"].token_ids
    second = submit("second", [*PREFIX[:20], *reply, 1, 2])
    core.submit(second)
    results = drain(core)
    assert results["second"].outputs[0].cached_tokens == 79, "all that were computed"
    assert results["second"].token_ids == answer(second)[0]


def test_at_least_one_token_is_always_computed() -> None:
    core = large_core(MockModel())
    for name in ("a", "b"):
        core.submit(submit(name, PREFIX[:64]))
        results = drain(core)
    assert results["b"].outputs[0].cached_tokens == 63
    assert results["b"].token_ids == answer(submit("b", PREFIX[:64]))[0]


def test_equal_blocks_computed_side_by_side_become_one() -> None:
    core = large_core(MockModel(), max_num_batched_tokens=600)
    one = submit("a", PREFIX[:40], max_tokens=200)
    for name in ("a", "b"):
        core.submit(submit(name, PREFIX[:40], max_tokens=200))
    results: dict[str, Collected] = {}
    for _ in range(60):
        collect(results, core.step())
        core.check()
    # a and b write the same: 6 full blocks together, and each the one it is filling.
    a, b = core._requests["a"], core._requests["b"]
    assert a.nodes == b.nodes
    assert core.kv.num_owned == len(a.nodes) + 2
    drain(core, results)
    assert results["a"].token_ids == results["b"].token_ids == answer(one)[0]


def test_nothing_is_shared_when_the_prefix_cache_is_off() -> None:
    model = MockModel()
    core = large_core(model, enable_prefix_caching=False)
    for i in range(3):
        core.submit(submit(str(i), [*PREFIX[:64], i]))
    results = drain(core)
    assert len(model.computed) == 3 * (65 + 3)
    assert all(result.outputs[0].cached_tokens == 0 for result in results.values())
    stats = core.stats()
    assert stats.blocks_cached == 0
    assert (stats.prefix_queries_tokens, stats.miss_reasons) == (0, {"disabled": 3})


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ([38, *PREFIX[1:16]], "too_short at token 0"),
        (PREFIX[:16], None),
        (PREFIX[:66], None),
        (PREFIX[:65], None),
        ([*PREFIX[:40], 39, *PREFIX[41:65]], "no_match at token 40"),
        ([38, *PREFIX[1:65]], "no_match at token 0"),
        (PREFIX[:100], "no_match at token 65"),
    ],
)
def test_a_miss_says_why(prompt: list[int], reason: str | None) -> None:
    core = large_core(MockModel())
    core.submit(submit("before", PREFIX[:65], max_tokens=1))
    drain(core)
    core.submit(submit("after", prompt))
    output = drain(core)["after"].outputs[0]
    assert output.cache_miss == reason


def test_a_miss_says_that_the_blocks_were_evicted() -> None:
    core = make_core(num_gpu_blocks_override=8)
    core.submit(submit("before", PREFIX[:65]))
    core.submit(submit("pushes", PREFIX[100:200]))
    core.submit(submit("after", PREFIX[:65]))
    outputs = drain(core)["after"].outputs
    assert (outputs[0].cached_tokens, outputs[0].cache_miss) == (16, "evicted at token 16")
    assert all(output.cache_miss is None for output in outputs[1:])
    assert core.stats().miss_reasons["evicted"] == 1


def test_an_end_id_ends_every_copy_at_the_same_token() -> None:
    core = large_core(MockModel())
    submits = [
        submit(str(i), [*PREFIX[:33], i], temperature=1.0, seed=i, ignore_eos=False, max_tokens=300)
        for i in range(20)
    ]
    for each in submits:
        core.submit(each)
    results = drain(core)
    reasons = Counter(result.finish_reason for result in results.values())
    assert reasons["stop"] > 0
    for each in submits:
        got = results[each.request_id]
        assert (got.token_ids, got.finish_reason) == answer(each)
        if got.finish_reason == "stop":
            assert got.token_ids[-1] == EOS
            assert got.outputs[-1].stop_reason is None


@pytest.mark.parametrize("windows", [(0,), (20,), (40,), (0, 20), (40, 0, 40)])
def test_forgetting_what_is_cached_leaves_what_is_held_and_every_answer_right(
    windows: tuple[int, ...],
) -> None:
    model = MockModel(windows=windows)
    total = 40 * len(windows)
    core = make_core(model, num_gpu_blocks_override=total, max_num_batched_tokens=32)
    before = submit("before", PREFIX[:120], max_tokens=20)
    core.submit(before)
    results = drain(core)
    cached = core.kv.num_cached
    running = submit("running", [*PREFIX[:64], *PREFIX[200:260]], max_tokens=60)
    core.submit(running)
    for _ in range(12):
        collect(results, core.step())
        core.check()
    assert core.kv.num_cached
    held = core.kv.num_owned
    assert 0 < core.reset_prefix_cache() <= cached + 10 * len(windows)
    core.check()
    assert (core.kv.num_cached, core.kv.num_owned) == (0, held)
    assert core.kv.num_free == total - held
    assert core.reset_prefix_cache() == 0
    again = submit("again", PREFIX[:120], max_tokens=20)
    core.submit(again)
    drain(core, results)
    for each in (before, running, again):
        assert results[each.request_id].token_ids == answer(each, windows=windows)[0]
    if not any(windows):
        assert "evicted" not in (results["again"].outputs[0].cache_miss or "")
    core.reset_prefix_cache()
    core.check()
    assert core.kv.num_free == total
    assert not core.kv._tree._roots, "nothing is left of the trees"


def test_who_waits_for_a_prefix_goes_on_after_the_cache_was_forgotten() -> None:
    core = make_core(max_num_batched_tokens=16)
    submits = [submit(str(i), [*PREFIX[:90], i], max_tokens=5) for i in range(4)]
    for each in submits:
        core.submit(each)
    results: dict[str, Collected] = {}
    while core.has_work:
        collect(results, core.step())
        core.reset_prefix_cache()
        core.check()
    for each in submits:
        assert results[each.request_id].token_ids == answer(each)[0]
