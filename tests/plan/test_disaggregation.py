"""Prefill and decode apart: by hand, beside the same replicas together, and what is refused."""

from __future__ import annotations

import json

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.disaggregation import DisaggregatedSpeed, Pools, disaggregated_speed
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.plan.speed.speed import Load

CATALOG = Catalog.load()
LOAD = Load(prompt_tokens=4096, output_tokens=257, batch=32)


def replica() -> Replica:
    kv = kv_kind("F16", CATALOG)
    storage = Storage(CATALOG.quantizations["bf16"], kv, kv)
    shape = shape_of_catalog(CATALOG.models["llama-3.1-8b"])
    return replica_of(CATALOG, shape, storage, ReplicaChoice(hardware="h100"), None)


def split(prefill: int, decode: int, gbyte_per_s: float | None = 50) -> DisaggregatedSpeed:
    bandwidth = None if gbyte_per_s is None else gbyte_per_s * 1e9
    pools = Pools(prefill=prefill, decode=decode, bandwidth_bytes_per_s=bandwidth)
    return disaggregated_speed(CATALOG, replica(), LOAD, pools)


def test_times_and_rates_by_hand() -> None:
    found, speed = split(1, 2), replica().model.speed(LOAD)
    sent = 4096 * 131_072 / 50e9
    assert found.transfer.value == pytest.approx(sent)
    assert found.ttft.value == pytest.approx(speed.ttft.value_s * 1.1 + sent)
    assert found.tpot.value == pytest.approx(speed.tpot.value_s * 1.08)
    prompts = 1 / (speed.ttft.value_s * 1.1)
    answers = 2 * 32 / (256 * speed.tpot.value_s * 1.08)
    assert found.requests.value == pytest.approx(min(prompts, answers))
    assert found.bound_by == ("prefill" if prompts < answers else "decode")
    together = 3 * 32 / (32 * speed.ttft.value_s + 256 * speed.tpot.value_s)
    assert found.together.value == pytest.approx(together)
    for figure in found.figures:
        assert figure.band[0] <= figure.value <= figure.band[1]
    assert json.loads(json.dumps(found.as_dict()))["bound_by"] == found.bound_by


def test_the_best_pools_are_full_at_once() -> None:
    best = split(1, 1).best
    at_best = split(*best)
    each = at_best.requests.value / sum(best)
    for pools in ((1, 1), (1, 2), (2, 1), (1, 4), (3, 2)):
        assert split(*pools).requests.value / sum(pools) <= each * (1 + 1e-9)


def test_a_device_sends_over_its_network_where_nothing_else_is_said() -> None:
    found = split(1, 1, None)
    network = replica().model.setup.device.network
    assert network is not None
    assert found.transfer.value == pytest.approx(
        4096 * 131_072 / network.bandwidth_bytes_per_s + network.latency_s
    )


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(ConfigError, match="decode replicas is 0"):
        Pools(prefill=1, decode=0)
    with pytest.raises(ConfigError, match="transfer is 0"):
        Pools(prefill=1, decode=1, bandwidth_bytes_per_s=0)
    one = Load(prompt_tokens=10, output_tokens=1)
    with pytest.raises(ConfigError, match="output is 1 token"):
        disaggregated_speed(CATALOG, replica(), one, Pools(prefill=1, decode=1))
