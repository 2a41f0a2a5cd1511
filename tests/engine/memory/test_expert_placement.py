"""Of how many layers the experts are on the CPU: what is asked, what fits, what is refused."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.memory.device_memory import step_bytes
from headrace.engine.memory.expert_memory import PlannedModel, WeightPlan, plan_weights
from headrace.engine.memory.expert_placement import plan_places
from headrace.engine.memory.kv_memory import MIB, REST_BYTES
from headrace.errors import ConfigError
from headrace.models import read_config
from headrace.ops.placement import ALL_LAYERS
from headrace.weights.checkpoint import Checkpoint
from tests.engine.mock import real_ops
from tests.tiny import tiny_checkpoint

PLENTY = 1 << 40
KV = {"kv_cache_memory_bytes": 2 * MIB, "max_num_batched_tokens": 64, "max_num_seqs": 2}


@functools.cache
def large() -> Checkpoint:
    """Four layers of experts that are most of it."""
    return tiny_checkpoint("qwen3_moe", "Q8_0", layers=4, num_experts=32, moe_intermediate_size=128)


def plan(
    device: int | None, here: int = PLENTY, checkpoint: Checkpoint | None = None, **settings: Any
) -> WeightPlan:
    config = EngineConfig(**{"backend": "torch", "device": "cpu", **KV, **settings})
    return plan_places([PlannedModel(checkpoint or large(), config)], device, here)


def experts_of_a_layer() -> int:
    tensors = large().tensors.items()
    return sum(item.nbytes for name, item in tensors if "layers.0." in name and ".experts." in name)


def whole() -> int:
    """A device that holds all of it, to the byte."""
    config = EngineConfig(backend="torch", **KV)
    vocab = large().tensors["lm_head.weight"].shape[0]
    steps = step_bytes(read_config(large()), vocab, config, recorded_tables=1)
    weights = sum(tensor.nbytes for tensor in large().tensors.values())
    return weights + steps + 2 * MIB + REST_BYTES


@pytest.fixture(autouse=True)
def kernels() -> None:
    real_ops("cpu")


def test_nothing_is_placed_where_the_device_holds_all_or_is_this_machine() -> None:
    assert plan(whole()) == WeightPlan()
    assert plan(None) == WeightPlan()
    assert plan(whole() - 1).cpu_layers == 1
    assert plan(whole(), n_cpu_moe=0) == WeightPlan()


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_fewest_layers_are_placed_with_which_the_rest_fits(layers: int) -> None:
    """Each layer that is placed gives the device back its experts, and no byte less."""
    least = whole() - layers * experts_of_a_layer()
    assert plan(least).cpu_layers == layers
    assert plan(least + experts_of_a_layer() - 1).cpu_layers == layers
    found = plan(least)
    assert found.dense_bytes == 0, "it is on the device"
    assert found.expert_bytes == layers * experts_of_a_layer()
    assert found.expert_cache_bytes is None


def test_what_is_asked_is_done_and_said_where_it_does_not_fit() -> None:
    two = whole() - 2 * experts_of_a_layer()
    assert plan(two, cpu_moe=True).cpu_layers == ALL_LAYERS
    assert plan(two, n_cpu_moe=3).cpu_layers == 3
    # The KV cache is refused with flags of its own, when it is planned.
    assert plan(two, n_cpu_moe=1).cpu_layers == 1
    tight = two - 2 * MIB - experts_of_a_layer()
    with pytest.raises(
        ConfigError, match=r"with --n-cpu-moe 1 the weights on the device"
    ) as caught:
        plan(tight, n_cpu_moe=1)
    (least,) = re.findall(r"Use --n-cpu-moe (\d+) or more", str(caught.value))
    assert plan(tight, n_cpu_moe=int(least)).cpu_layers == int(least)
    with pytest.raises(ConfigError, match="even with the experts of all layers on the CPU"):
        plan(REST_BYTES + 1000)


def test_the_memory_here_holds_what_is_placed_or_a_cache_of_it() -> None:
    both = {"cpu_moe": True}
    packed = plan(PLENTY, **both).expert_bytes
    scratch = plan(PLENTY, **both).scratch_bytes
    assert packed == 4 * experts_of_a_layer()
    assert plan(PLENTY, REST_BYTES + scratch + packed, **both).expert_cache_bytes is None
    cache = plan(PLENTY, REST_BYTES + scratch + packed - 1, **both).expert_cache_bytes
    assert cache is not None and 0 < cache < packed
    asked = plan(PLENTY, **both, expert_cache_memory_bytes=packed // 2)
    assert asked.expert_cache_bytes == packed // 2
    with pytest.raises(ConfigError, match="MiB\\) of memory are available for them"):
        plan(PLENTY, REST_BYTES + 1000, **both)


def test_on_a_device_that_is_this_machine_both_parts_are_of_one_memory() -> None:
    found = plan(None, cpu_moe=True)
    stored = sum(tensor.nbytes for tensor in large().tensors.values())
    assert found.dense_bytes == stored - 4 * experts_of_a_layer()
    enough = found.dense_bytes + found.expert_bytes + found.scratch_bytes + 2 * MIB + REST_BYTES
    assert plan(None, enough, cpu_moe=True).expert_cache_bytes is None
    assert plan(None, enough - 1, cpu_moe=True).expert_cache_bytes is not None


def test_on_the_kernels_it_is_what_happens_anyway() -> None:
    config = EngineConfig(backend="cpu", **KV)
    assert plan(None, backend="cpu", cpu_moe=True) == plan_weights(large(), config, PLENTY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpu_moe": True, "n_cpu_moe": 2}, "--n-cpu-moe those of 2: omit one of them"),
        ({"cpu_moe": True, "n_cpu_moe": 2, "backend": "cpu"}, "omit one of them"),
        ({"cpu_moe": True, "backend": "reference"}, "use --backend torch"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan(None, **settings)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_a_model_without_experts_has_none_to_place(backend: str) -> None:
    dense = tiny_checkpoint("llama")
    with pytest.raises(ConfigError, match="has no experts that a router chooses from"):
        plan(None, checkpoint=dense, backend=backend, n_cpu_moe=1)
    assert plan(PLENTY, checkpoint=dense) == WeightPlan()
