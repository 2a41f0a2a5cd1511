"""Models whose every layer has a window: blocks before it are freed, and answers stay right."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.kv_sizes import most_blocks
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.errors import ConfigError
from headrace.models.layer_cache import CacheGroup
from tests.engine.expected import answer
from tests.engine.mock import MockModel, drain, make_core, submit

WINDOW, BUDGET, BLOCK = 40, 32, 16


@pytest.mark.parametrize("caching", [True, False])
def test_a_long_request_holds_no_more_than_its_window(caching: bool) -> None:
    model = MockModel(windows=(WINDOW,))
    core = make_core(
        model,
        num_gpu_blocks_override=8,
        max_num_batched_tokens=BUDGET,
        enable_prefix_caching=caching,
    )
    most = most_blocks(1 << 20, BLOCK, WINDOW, BUDGET)
    assert most <= 8, "the pool is smaller than the request, and larger than its window"
    one = submit("long", [i % 30 for i in range(500)], max_tokens=100)
    core.submit(one)
    held = []
    while core.has_work:
        core.step()
        core.check()
        held.append(core.kv.num_owned)
        for batch in model.batches[-1:]:
            first = max(0, int(batch.positions.min()) + 1 - WINDOW) // BLOCK
            assert not batch.block_tables[0][0, : max(0, first - 1)].any(), "a freed block is named"
    assert max(held) <= most
    assert core.limits.context_tokens == model.max_positions


def test_answers_are_those_of_a_window() -> None:
    core = make_core(
        MockModel(windows=(WINDOW,)), num_gpu_blocks_override=9, max_num_batched_tokens=32
    )
    asked = [submit(str(n), [n, *range(20), n] * 6, max_tokens=50, seed=n) for n in range(6)]
    for each in asked:
        core.submit(each)
    results = drain(core)
    for each in asked:
        expected = answer(each, windows=(WINDOW,))
        got = results[each.request_id]
        assert (got.token_ids, got.finish_reason) == expected


def test_a_prefix_is_of_use_where_its_last_window_is_there() -> None:
    model = MockModel(windows=(WINDOW,))
    core = make_core(model, num_gpu_blocks_override=8, max_num_batched_tokens=32)
    prompt = [i % 37 for i in range(200)]
    core.submit(submit("first", prompt, max_tokens=1))
    drain(core)
    assert core.kv.num_cached == 8, "early blocks went, late ones stayed"
    model.computed.clear()
    core.submit(submit("again", [*prompt, 1, 2, 3], max_tokens=1))
    drain(core)
    assert min(position for position, _ in model.computed) == 200
    model.computed.clear()
    core.submit(submit("early", [*prompt[:64], 5], max_tokens=1))
    results = drain(core)
    assert min(position for position, _ in model.computed) == 0, "its blocks are gone"
    assert "evicted" in (results["early"].outputs[0].cache_miss or "")


def test_sizes_follow_the_window() -> None:
    model = MockModel(windows=(WINDOW,), max_positions=4096)
    config = EngineConfig(
        max_num_batched_tokens=32, block_size=16, num_gpu_blocks_override=8, max_model_len=4000
    )
    plan = plan_kv_cache(model, config, available_bytes=1 << 30)
    assert (plan.max_model_len, plan.pool_tokens) == (4000, 4000)
    without = MockModel(max_positions=4096)
    with pytest.raises(ConfigError, match="needs 250 blocks"):
        plan_kv_cache(without, config, available_bytes=1 << 30)
    small = EngineConfig(
        max_num_batched_tokens=32, block_size=16, num_gpu_blocks_override=4, max_model_len=4000
    )
    with pytest.raises(ConfigError, match="needs 7 blocks"):
        plan_kv_cache(model, small, available_bytes=1 << 30)


def test_blocks_of_a_window_are_counted() -> None:
    for window in (1, 5, 16, 33):
        for chunk in (1, 7, 16, 40):
            most = most_blocks(1 << 20, BLOCK, window, chunk)
            for start in range(200):
                first = max(0, start + 1 - window) // BLOCK
                last = (start + chunk - 1) // BLOCK
                hangs_on = max(0, start // BLOCK - 1)
                assert last - min(first, hangs_on) + 1 <= most
    assert np.array_equal([most_blocks(n, 16, 0, 8) for n in (0, 1, 16, 17)], [0, 1, 1, 2])


@pytest.mark.parametrize("step", [1, 5, 16])
def test_a_chunk_that_is_over_is_let_go_of_at_once(step: int) -> None:
    """Held are the blocks of the chunk that the next token is in, and the last before it."""
    chunk, size = 24, 4
    group = CacheGroup(chunk, chunked=True)
    kv = KVCache(16, size, groups=[group], max_step_tokens=16)
    request = Request("long", [1] * 200, 200, SamplingParams(), 201)
    assert kv.admit(request, kv.find(request), 200, 0)
    while request.num_computed < 200 - step:
        assert kv.grow(request)
        request.num_computed += step
        kv.commit(request)
        first = request.num_computed // chunk * chunk // size
        last_full = request.num_computed // size - 1
        assert request.tables[0].num_dropped == min(first, max(0, last_full))
        kv.check([request])
    kv.release(request)


def test_a_path_of_more_blocks_than_calls_nest_leaves_the_tree() -> None:
    """All of its first blocks are gone when the last one goes, and their nodes with it."""
    num_tokens = 4 * (sys.getrecursionlimit() + 200)
    kv = KVCache(16, 4, groups=[CacheGroup(8)], max_step_tokens=16)
    request = Request("long", [1] * num_tokens, num_tokens, SamplingParams(), num_tokens + 1)
    assert kv.admit(request, kv.find(request), num_tokens, 0)
    while request.num_computed < num_tokens:
        assert kv.grow(request)
        request.num_computed += 16
        kv.commit(request)
    kv.release(request)
    assert kv.forget_cached() == 16
    kv.check([])
    assert not kv._tree.nodes()
