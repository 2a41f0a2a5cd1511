"""The line that comes closest to a roofline, and the replica it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.calibration.stored import Found
from headrace.plan.machine.device import device_of
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage as MemoryStorage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.simulation.engine_of import (
    engine_of,
    kv_bytes_per_token,
    measured_latency,
    stated_cold_start_s,
)
from headrace.plan.speed.latency_of_roofline import latency_of_roofline
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.plan.speed.speed import SpeedModel, SpeedSetup
from headrace.plan.step.efficiency import stated_efficiencies
from headrace.plan.step.step import Storage

CATALOG = Catalog.load()


def model_of(name: str) -> SpeedModel:
    return SpeedModel(
        SpeedSetup(
            shape=shape_of_catalog(CATALOG.models[name]),
            storage=Storage(bytes_per_weight=2),
            device=device_of(CATALOG, "h100")[0],
            efficiencies=stated_efficiencies(CATALOG, CATALOG.hardware["h100"]),
        )
    )


@pytest.mark.parametrize(
    ("name", "mean", "worst"), [("llama-3.1-8b", 0.06, 0.25), ("qwen3-30b-a3b", 0.12, 0.25)]
)
def test_the_line_is_near_the_roofline_and_says_how_near(
    name: str, mean: float, worst: float
) -> None:
    model = model_of(name)
    found = latency_of_roofline(model, most_batch=256, most_context_tokens=2600)
    assert 0 < found.mean_error < mean
    assert found.mean_error < found.worst_error < worst
    for batch in (16, 64, 256):
        step_s = found.latency.step((), batch, batch * 1301)
        assert step_s == pytest.approx(model.decode_step(batch, 1300).seconds, rel=worst)
    prompt_s = found.latency.step([(0, 1024)], 0, 0)
    assert prompt_s == pytest.approx(model.prefill(1024).seconds, rel=worst)
    assert "from data sheet" in found.latency.source
    assert f"{found.mean_error:.0%} on average" in found.latency.source


def replica() -> Replica:
    kind = kv_kind("F16", CATALOG)
    storage = MemoryStorage(CATALOG.quantizations["bf16"], kind, kind)
    shape = shape_of_catalog(CATALOG.models["llama-3.1-8b"])
    return replica_of(CATALOG, shape, storage, ReplicaChoice(hardware="h100"), None)


def test_a_replica_s_cache_is_what_its_memory_holds() -> None:
    one = replica()
    per_token = kv_bytes_per_token(one, 1600)
    assert per_token == 2 * 32 * 8 * 128 * 2
    made = engine_of(one, context_tokens=1600, max_num_seqs=128)
    free = one.memory(1600, 128).free_for_kv.value
    assert made.num_blocks == int(free / (16 * per_token))
    assert made.max_num_batched_tokens == 2048
    with pytest.raises(ConfigError, match="fit"):
        engine_of(one, context_tokens=900_000, max_num_seqs=128)


def test_cold_starts_are_the_catalog_s() -> None:
    assert stated_cold_start_s(CATALOG) == (30, 120)


def test_nothing_measured_is_taken_for_other_hardware() -> None:
    assert measured_latency(Found(None, Path("x")), "this", "m") is None
    assert measured_latency(Found(None, Path("x")), "h100", "m") is None
