"""How far memory of the KV cache is made ready: for the blocks that the next step may take."""

from __future__ import annotations

import pytest

from headrace.engine.core import EngineCore
from tests.engine.mock import (
    MockModel,
    MockOps,
    collect,
    drain,
    make_core,
    make_draft,
    submit,
)
from tests.engine.plans import prompt

ALWAYS = '{"method": "draft_model", "model": "m", "adaptive": false, "num_speculative_tokens": 4}'


def populated(core: EngineCore) -> int:
    ops = core._ops
    assert isinstance(ops, MockOps)
    return ops.populated


def test_an_engine_at_rest_has_the_blocks_of_one_step() -> None:
    core = make_core(num_gpu_blocks_override=64, max_num_batched_tokens=64)
    core.warm_up()
    assert populated(core) == 4


@pytest.mark.parametrize("streams", [1, 5])
def test_memory_is_ready_before_any_step_takes_a_block(streams: int) -> None:
    core = make_core(num_gpu_blocks_override=200, max_num_batched_tokens=64)
    core.warm_up()
    results: dict = {}
    for number in range(streams):
        core.submit(submit(f"{number}", prompt(40, number), max_tokens=60))
    first = True
    while core.has_work:
        ready, taken = populated(core), core.kv.num_touched
        collect(results, core.step())
        assert populated(core) <= core.kv.num_touched + 4 + streams, "no more than one step takes"
        if first:
            assert ready >= 4, "the first chunk's"
        elif len(core.scheduler.running) == streams:
            assert core.kv.num_touched <= ready, f"{taken} were in use"
        first = False


def test_it_ends_with_the_last_block() -> None:
    core = make_core(num_gpu_blocks_override=8, max_num_batched_tokens=64)
    core.submit(submit("a", prompt(100), max_tokens=20))
    drain(core)
    assert populated(core) == 8


def test_all_of_it_is_ready_from_the_beginning_where_it_is_asked_for() -> None:
    assert populated(make_core(num_gpu_blocks_override=64, populate_kv_cache=True)) == 64


def test_blocks_that_were_used_are_taken_before_others() -> None:
    core = make_core(num_gpu_blocks_override=64, enable_prefix_caching=False)
    core.submit(submit("a", prompt(100, 1), max_tokens=20))
    drain(core)
    touched = core.kv.num_touched
    assert touched == 8
    for number in range(5):
        core.submit(submit(f"{number}", prompt(100, number), max_tokens=20))
        drain(core)
    assert core.kv.num_touched == touched


def test_a_draft_models_own_blocks_are_made_ready_likewise() -> None:
    draft = make_draft(MockModel())
    ops = draft._ops
    assert isinstance(ops, MockOps)
    core = make_core(draft=draft, speculative_config=ALWAYS)
    core.warm_up()
    at_rest = ops.populated
    assert 0 < at_rest < draft.plan.num_blocks
    core.submit(submit("a", prompt(200), max_tokens=60))
    while core.has_work:
        core.step()
        assert ops.populated >= draft.cache.kv.num_touched
    assert ops.populated > at_rest
    assert ops.populated < draft.plan.num_blocks


def test_all_of_a_draft_models_blocks_are_ready_where_it_is_asked_for() -> None:
    draft = make_draft(MockModel())
    ops = draft._ops
    assert isinstance(ops, MockOps)
    make_core(draft=draft, speculative_config=ALWAYS, populate_kv_cache=True)
    assert ops.populated == draft.plan.num_blocks
