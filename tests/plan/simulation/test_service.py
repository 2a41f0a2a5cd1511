"""Services: failures lose nobody, autoscalers react, pools hand over, results repeat."""

from __future__ import annotations

import random

import pytest

from headrace.bench.slo import parse_slo
from headrace.errors import ConfigError
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.service import Service
from headrace.plan.simulation.settings import (
    AutoscaleSettings,
    Disaggregation,
    FailureSettings,
    ScaleBy,
)
from headrace.plan.simulation.simulate import fewest_replicas, simulate, with_replicas
from tests.plan.simulation.services import LATENCY, engine, poisson, service

LOAD = poisson(30, 150, (50, 500), (10, 100))
POOLS = Disaggregation(
    prefill_replicas=2, decode_replicas=2, kv_bytes_per_token=1e5, link_bytes_per_s=1e9,
    link_latency_s=0.01,
)  # fmt: skip


def scaling(by: ScaleBy, target: float, **changed: float) -> AutoscaleSettings:
    settings = {"cold_start_s": (1.0, 2.0), "interval_s": 1.0, "down_after_s": 5.0, **changed}
    return AutoscaleSettings(by=by, target=target, least=1, most=8, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("pools", [None, POOLS])
def test_failures_lose_nobody(pools: Disaggregation | None) -> None:
    failures = FailureSettings(at=((2.0, 0), (2.5, 1), (3, 99)), mtbf_s=20, mttr_s=1)
    run = Service(service(replicas=2, failures=failures, disaggregation=pools), LOAD).run()
    assert len(run.finished) == len(LOAD)
    assert run.retries > 0
    assert (2.0, 0) in run.failures
    assert sum(run.finished.output_tokens) == sum(one.output_tokens for one in LOAD)


def test_a_cache_that_was_sent_is_no_prefix_hit() -> None:
    result = simulate(service(disaggregation=POOLS), [Arrival(0, 160, 3)])
    assert not result.prefix_hit_share


def test_while_nobody_is_there_requests_wait_and_count_from_their_arrival() -> None:
    failures = FailureSettings(at=((1.0, 0),), mttr_s=10)
    run = Service(service(failures=failures), [Arrival(1.5, 10, 2)]).run()
    ttft_s = 11 - 1.5 + LATENCY.step([(0, 10)], 0, 0)
    assert run.finished.times("ttft")[0] == pytest.approx(ttft_s)


def test_what_a_broken_replica_had_begins_again_from_its_arrival() -> None:
    failures = FailureSettings(at=((0.1, 0),), mttr_s=1)
    run = Service(service(failures=failures), [Arrival(0, 10, 1000)]).run()
    assert run.retries == 1
    assert run.finished.times("ttft")[0] == pytest.approx(1.1 + LATENCY.step([(0, 10)], 0, 0))


@pytest.mark.long
@pytest.mark.parametrize(("by", "target"), [("queue", 1.0), ("kv", 0.3), ("slo", 0.8)])
def test_an_autoscaler_adds_replicas_under_load_and_takes_them_away(
    by: ScaleBy, target: float
) -> None:
    busy = poisson(40, 800, (400,), (100,))
    quiet = [Arrival(busy[-1].at_s + 2.0 * at, 50, 5) for at in range(1, 25)]
    small = engine(num_blocks=1000, max_num_seqs=16)
    limit = {"ttft_s": 0.3} if by == "slo" else {}
    run = Service(
        service(small, autoscale=scaling(by, target, window_s=10, **limit), sample_s=1.0),
        [*busy, *quiet],
    ).run()
    assert len(run.finished) == len(busy) + len(quiet)
    ready = [one.replicas_ready for one in run.points]
    assert ready[0] == 1
    assert 2 < max(ready) <= 8
    assert ready[-1] == 1
    assert run.decisions[0].after > run.decisions[0].before
    fixed = Service(service(small), [*busy, *quiet]).run()
    assert run.finished.times("ttft").mean() < fixed.finished.times("ttft").mean()
    paid_s = sum((one.gone_s or 0) - one.started_s for one in run.replicas)
    assert run.end_s < paid_s < 8 * run.end_s


def test_a_cold_start_delays_what_is_added() -> None:
    settings = service(
        engine(max_num_seqs=1), autoscale=scaling("queue", 1.0, cold_start_s=(7.0, 7.0)),  # type: ignore[arg-type]
        sample_s=0.5,
    )  # fmt: skip
    run = Service(settings, poisson(20, 400, (400,), (50,))).run()
    first = run.decisions[0]
    ready = next(one.at_s for one in run.points if one.replicas_ready > 1)
    assert ready == pytest.approx(first.at_s + 7, abs=0.5)


def test_pools_hand_the_cache_over_and_decode_without_prefill() -> None:
    run = Service(service(disaggregation=POOLS), [Arrival(0, 160, 3)]).run()
    prefill_s = LATENCY.step([(0, 160)], 0, 0)
    transfer_s = 0.01 + 160 * 1e5 / 1e9
    decode_s = LATENCY.step([(160, 1)], 0, 0) + LATENCY.step((), 1, 162)
    assert run.finished.times("ttft")[0] == pytest.approx(prefill_s)
    assert run.end_s == pytest.approx(prefill_s + transfer_s + decode_s)
    decoded = [one for one in run.replicas if one.generated_tokens == 2]
    assert [one.computed_tokens for one in decoded] == [2]


@pytest.mark.long
def test_prefill_in_a_pool_of_its_own_leaves_decode_steps_even() -> None:
    load = poisson(12, 100, (2000,), (60,))
    mixed = Service(service(engine(num_blocks=20_000), replicas=4), load).run()
    split = Service(service(engine(num_blocks=20_000), disaggregation=POOLS), load).run()
    assert len(split.finished) == len(load)
    assert split.finished.times("tpot").max() < mixed.finished.times("tpot").max()


def test_prefix_aware_routing_finds_more_than_round_robin() -> None:
    source = random.Random(0)
    load = [
        one._replace(prompt_tokens=700, shared=(source.randrange(40),), shared_tokens=640)
        for one in poisson(20, 300, (1,), (20,))
    ]
    small = engine(num_blocks=800)
    hits = {}
    for routing in ("round-robin", "prefix-aware"):
        run = Service(service(small, replicas=4, routing=routing), load).run()
        hits[routing] = sum(one.hit_tokens for one in run.replicas)
    assert hits["prefix-aware"] > 1.3 * hits["round-robin"]


@pytest.mark.long
def test_the_same_seed_gives_the_same_result_and_another_does_not() -> None:
    def result(seed: int) -> object:
        failures = FailureSettings(mtbf_s=10, mttr_s=2)
        return simulate(service(replicas=2, failures=failures, seed=seed), LOAD).as_dict() | {
            "settings": None
        }

    assert result(1) == result(1)
    assert result(1) != result(2)


def test_figures_of_a_result_add_up() -> None:
    slo = parse_slo("ttft:20 tpot:p95<30ms e2e:mean<9s").conditions
    result = simulate(
        service(replicas=2), LOAD, conditions=slo, usd_per_replica_hour=3.6, notes=("so",)
    )
    assert result.completed == result.arrived == len(LOAD)
    assert result.replica_hours == pytest.approx(2 * result.seconds / 3600)
    cost, goodput = result.cost, result.goodput
    assert cost is not None
    assert cost.total == pytest.approx(2 * result.seconds * 3.6 / 3600)
    assert cost.per_hour == pytest.approx(7.2)
    assert goodput is not None
    assert goodput.met is True
    assert 0 < goodput.fraction < 1
    assert goodput.conditions[0].share == goodput.fraction
    assert goodput.requests_per_s == pytest.approx(goodput.good / result.seconds)
    assert result.notes == ("so",)
    assert result.points[-1].completed == len(LOAD)
    tpot = result.overall.spreads["tpot"]
    assert tpot is not None
    assert goodput.conditions[1].value_ms == pytest.approx(tpot.p95_s * 1e3)


def test_requests_too_long_for_a_replica_are_refused_and_counted_bad() -> None:
    load = [Arrival(0, 100, 5), Arrival(1, 40_000, 5)]
    slo = parse_slo("ttft:500").conditions
    result = simulate(service(), load, conditions=slo)
    assert result.refused == 1
    assert result.goodput is not None
    assert result.goodput.fraction == 0.5
    assert "1 requests need more" in result.notes[0]
    with pytest.raises(ConfigError, match="none of 1 requests fits"):
        simulate(service(), load[1:])
    with pytest.raises(ConfigError, match="this load has no requests"):
        simulate(service(), [])


@pytest.mark.long
def test_the_fewest_replicas_are_found_and_one_fewer_misses() -> None:
    load = poisson(60, 300, (400,), (50,))
    slo = parse_slo("ttft:300 tpot:25").conditions
    settings = service(engine(max_num_seqs=32))

    def good(count: int) -> float:
        goodput = simulate(with_replicas(settings, count), load, conditions=slo).goodput
        assert goodput is not None
        return goodput.fraction

    found = fewest_replicas(
        lambda count: simulate(with_replicas(settings, count), load, conditions=slo), 64, 0.95
    )
    assert found.replicas > 1
    assert good(found.replicas) >= 0.95 > good(found.replicas - 1)
    with pytest.raises(ConfigError, match="1 replicas do not meet the SLO"):
        fewest_replicas(lambda count: simulate(settings, load, conditions=slo), 1, 0.95)
    with pytest.raises(ConfigError, match="needs an SLO"):
        fewest_replicas(lambda count: simulate(settings, load), 1, 0.95)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_replicas is 0"):
        AutoscaleSettings(by="kv", target=0.7, least=1, most=0, cold_start_s=(1, 2))
    with pytest.raises(ConfigError, match="ttft:500"):
        AutoscaleSettings(by="slo", target=0.7, least=1, most=2, cold_start_s=(1, 2))
    with pytest.raises(ConfigError, match="replicas is 9"):
        service(replicas=9, autoscale=scaling("queue", 1))
    with pytest.raises(ConfigError, match="num_blocks is 0"):
        engine(num_blocks=0)
    with pytest.raises(ConfigError, match="no itl_chunk"):
        simulate(service(), LOAD, conditions=parse_slo("itl:p95<50").conditions)
