"""Figures of a simulation: each one that is printed, with ids that are found and nothing lost."""

from __future__ import annotations

import json

import msgspec
import pytest

from headrace.bench.slo import parse_slo
from headrace.catalog import Catalog
from headrace.plan import ReplicaChoice, Storage, kv_kind, replica_of, shape_of_catalog
from headrace.plan.explanation import explain, lost_figures
from headrace.plan.saved_plan import SavedPlan
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.engine_of import engine_of
from headrace.plan.simulation.figures import STATISTICS, statistic_id
from headrace.plan.simulation.plan import SimulationPlan
from headrace.plan.simulation.settings import SimulationSettings
from headrace.plan.simulation.simulate import FewestReplicas, simulate
from tests.plan.simulation.services import poisson, service

CATALOG = Catalog.load()
LOAD = [
    Arrival(one.at_s, one.prompt_tokens, one.output_tokens, priority=at % 2)
    for at, one in enumerate(poisson(20, 260, (50, 300), (2, 20)))
]
SLO = parse_slo("ttft:300 e2e:p95<9s").conditions


def planned() -> SimulationPlan:
    kv = kv_kind("F16", CATALOG)
    storage = Storage(CATALOG.quantizations["bf16"], kv, kv)
    shape = shape_of_catalog(CATALOG.models["llama-3.1-8b"])
    replica = replica_of(CATALOG, shape, storage, ReplicaChoice(hardware="h100"), None)
    engine = engine_of(replica, context_tokens=200, max_num_seqs=64)
    settings = SimulationSettings(engine=engine, replicas=2)
    result = simulate(settings, LOAD, conditions=SLO, usd_per_replica_hour=2.5)
    fewest = FewestReplicas(replicas=2, attainment=0.99, tried=((1, False, 0.9), (2, True, 1.0)),
                            result=result)  # fmt: skip
    return SimulationPlan(result=result, replica=replica, context_tokens=200, fewest=fewest)


FOUND = planned()


def test_every_figure_has_an_id_of_its_own_and_is_explained() -> None:
    ids = [one.id for one in FOUND.quantities]
    assert len(set(ids)) == len(ids)
    kept = msgspec.convert(json.loads(json.dumps(FOUND.as_dict())), SavedPlan, strict=False)
    assert lost_figures(kept.quantities) == []
    assert kept.title == "plan of Llama 3.1 8B on NVIDIA H100 SXM 80 GB"
    for one in kept.quantities:
        explain(kept, one.id, CATALOG)
    whole = json.dumps(explain(kept, "simulate.ttft.p95", CATALOG).as_dict())
    for word in ("h100-sxm.memory_bytes", "h100-sxm.bandwidth_bytes_per_s", "figure free-for-kv",
                 "prefill_token_s", "roofline of Llama 3.1 8B"):  # fmt: skip
        assert word in whole


def test_figures_are_what_the_tables_print() -> None:
    figures = {one.id: one for one in FOUND.quantities}
    result = FOUND.result
    for lane in (result.overall, *result.lanes):
        for metric, spread in lane.spreads.items():
            assert spread is not None
            for statistic in STATISTICS:
                figure = figures[statistic_id(metric, statistic, lane.priority)]
                assert figure.value == getattr(spread, f"{statistic}_s")
    assert result.goodput is not None and result.cost is not None
    assert figures["simulate.good"].value == result.goodput.fraction
    assert figures["simulate.cost"].value == result.cost.total
    assert figures["simulate.fewest-replicas"].value == 2
    tokens = figures["simulate.kv-tokens"]
    assert tokens.value == result.settings.engine.num_blocks * 16
    assert tokens.band[0] < tokens.value < tokens.band[1]
    step = figures["simulate.step"]
    assert step.band[0] < step.value < step.band[1]


def test_bands_are_of_chance_and_the_longest_has_none() -> None:
    figures = {one.id: one for one in FOUND.quantities}
    mean, most = figures["simulate.e2e.mean"], figures["simulate.e2e.most"]
    assert mean.band[0] < mean.value < mean.band[1] and most.is_exact
    spread = FOUND.result.overall.spreads["e2e"]
    assert spread is not None
    assert spread.quantiles_s[50] == pytest.approx(spread.p50_s)
    assert spread.quantiles_s[-1] == spread.most_s
    assert list(spread.quantiles_s) == sorted(spread.quantiles_s)


def test_an_engine_that_is_given_has_figures_too() -> None:
    result = simulate(service(), LOAD[:20])
    found = SimulationPlan(result=result, replica=None, context_tokens=100, kv_given=True)
    ids = {one.id for one in found.quantities}
    assert {"simulate.kv-tokens", "simulate.step", "simulate.ttft.p95"} <= ids
    assert "free-for-kv" not in ids and "simulate.good" not in ids
    kept = msgspec.convert(json.loads(json.dumps(found.as_dict())), SavedPlan, strict=False)
    assert lost_figures(kept.quantities) == []
