"""A KV cache on a device with memory of its own: its share, and what is in use there."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.device_memory import LOGIT_BYTES, TABLE_BYTES, device_room, step_bytes
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.memory.weight_memory import check_weights_fit
from headrace.engine.recorded_steps import recorded_sizes
from headrace.errors import ConfigError
from headrace.models import read_config
from headrace.ops.device import ATTENTION_BYTES, DeviceMemory
from tests.engine.mock import MockModel
from tests.tiny import tiny_checkpoint

GIB = 1 << 30


def test_a_share_counts_what_others_use() -> None:
    """80 GiB at 0.9, of which weights and others hold 30."""
    device = DeviceMemory(free_bytes=50 * GIB, total_bytes=80 * GIB)
    assert device_room(device, 0.9) == 42 * GIB
    assert device_room(device, 1.0) == 50 * GIB
    assert device_room(device, 0.3) == 0


def test_the_kv_cache_takes_all_that_is_left_of_the_share() -> None:
    device = DeviceMemory(free_bytes=3 * GIB, total_bytes=4 * GIB)
    config = EngineConfig(max_num_seqs=100_000, gpu_memory_utilization=0.5)
    plan = plan_kv_cache(MockModel(), config, reserved_bytes=GIB // 4, device=device)
    assert plan.num_blocks == (GIB - GIB // 4) // plan.block_bytes
    assert plan.budget.startswith("--gpu-memory-utilization 0.5 of 4294967296 bytes (4096 MiB)")
    few = plan_kv_cache(MockModel(), EngineConfig(max_num_seqs=1), device=device)
    assert few.budget == f"enough for --max-num-seqs 1 of {MockModel().max_positions} tokens"


def test_a_size_that_is_set_has_to_be_there() -> None:
    device = DeviceMemory(free_bytes=GIB, total_bytes=4 * GIB)
    fits = EngineConfig(kv_cache_memory_bytes=GIB // 2)
    assert plan_kv_cache(MockModel(), fits, device=device).budget.startswith("--kv-cache-memory")
    with pytest.raises(ConfigError, match=r"only 644245094 bytes .* are available"):
        plan_kv_cache(MockModel(), EngineConfig(kv_cache_memory_bytes=GIB), device=device)
    with pytest.raises(ConfigError, match="does not fit in the KV cache"):
        config = EngineConfig(gpu_memory_utilization=0.7)
        plan_kv_cache(MockModel(), config, device=device)


def test_a_cache_without_a_block_needs_one_block() -> None:
    device = DeviceMemory(free_bytes=GIB, total_bytes=4 * GIB)
    with pytest.raises(ConfigError, match=r"it needs 1 block of 32 tokens, 1 x "):
        plan_kv_cache(MockModel(), EngineConfig(kv_cache_memory_bytes=1), device=device)


@pytest.mark.parametrize(
    ("setting", "grows"),
    [({"max_num_batched_tokens": 4096}, True), ({"max_num_seqs": 256}, True), ({}, False)],
)
def test_what_a_step_takes_grows_with_what_it_computes(
    setting: dict[str, Any], grows: bool
) -> None:
    model = read_config(tiny_checkpoint())
    least = step_bytes(model, 1000, EngineConfig())
    assert (step_bytes(model, 1000, EngineConfig(**setting)) > least) is grows
    assert least > LOGIT_BYTES * 64 * 1000, "a row of logits for each request"


def test_recorded_steps_have_memory_of_their_own() -> None:
    model = read_config(tiny_checkpoint())
    config = EngineConfig(max_num_seqs=3, max_model_len=160, block_size=16)
    none = step_bytes(model, 1000, config)
    one, two = (step_bytes(model, 1000, config, recorded_tables=tables) for tables in (1, 2))
    rows = sum(recorded_sizes(3))
    assert two - one == TABLE_BYTES * rows * 10, "an entry for each block of the longest request"
    assert one - none > 4 * 1000 * rows, "logits of each number of requests"
    eager = EngineConfig(max_num_seqs=3, max_model_len=160, block_size=16, enforce_eager=True)
    assert step_bytes(model, 1000, eager, recorded_tables=2) == none
    assert recorded_sizes(1) == (1,) and recorded_sizes(64)[-1] == 64
    assert recorded_sizes(65)[-1] == 128 and recorded_sizes(9999)[-1] == 512


def test_sums_of_long_contexts_are_counted_as_far_as_they_are_left() -> None:
    model = read_config(tiny_checkpoint())
    lengths = [1 << 9, 1 << 12, 1 << 40]
    short, long, endless = (
        step_bytes(model, 1000, EngineConfig(max_num_seqs=1, max_model_len=length))
        for length in lengths
    )
    shape = model.attention_of(0)
    one = 4 * 128 * shape.num_kv_heads * shape.value_width
    assert long - short == 7 * one
    assert endless - short == ATTENTION_BYTES - one


def test_weights_that_a_device_does_not_hold_are_refused() -> None:
    checkpoint = tiny_checkpoint()
    needed = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    check_weights_fit(checkpoint, "torch", needed + (64 << 20))
    with pytest.raises(ConfigError, match=f"the weights take {needed} bytes"):
        check_weights_fit(checkpoint, "torch", needed + (64 << 20) - 1)
