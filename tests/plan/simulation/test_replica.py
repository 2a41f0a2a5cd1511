"""A replica: times of single requests by hand, and many steps at once against single ones."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from headrace.models.layer_cache import ONE_GROUP, CacheGroup
from headrace.plan.simulation.arrival import Arrival, PromptWriter, own_token
from headrace.plan.simulation.finished import TIMES
from headrace.plan.simulation.service import Run, Service
from headrace.plan.simulation.settings import AutoscaleSettings, Disaggregation, FailureSettings
from tests.plan.simulation.services import LATENCY, engine, poisson, service


def test_a_single_request_takes_its_prefill_and_a_step_for_each_further_token() -> None:
    run = Service(service(), [Arrival(1.0, 100, 5)]).run()
    prefill_s = LATENCY.step([(0, 100)], 0, 0)
    decode_s = sum(LATENCY.step((), 1, 100 + token) for token in range(1, 5))
    assert run.finished.times("ttft")[0] == pytest.approx(prefill_s)
    assert run.finished.times("e2e")[0] == pytest.approx(prefill_s + decode_s)
    assert run.finished.times("tpot")[0] == pytest.approx(decode_s / 4)
    assert run.finished.times("queue")[0] == 0
    assert run.end_s == pytest.approx(1 + prefill_s + decode_s)
    assert run.replicas[0].busy_s == pytest.approx(prefill_s + decode_s)


def test_time_outside_of_steps_is_added_to_each_request() -> None:
    slower = engine(latency=replace(LATENCY, request_s=0.5))
    quick, slow = (
        Service(service(one), [Arrival(0, 10, 3)]).run().finished for one in (engine(), slower)
    )
    assert slow.times("ttft")[0] == pytest.approx(quick.times("ttft")[0] + 0.5)
    assert slow.times("e2e")[0] == pytest.approx(quick.times("e2e")[0] + 0.5)
    assert slow.times("tpot")[0] == pytest.approx(quick.times("tpot")[0])


def test_a_request_that_comes_in_a_stretch_enters_with_the_next_step() -> None:
    first_s = LATENCY.step([(0, 10)], 0, 0)
    starts = [first_s]
    for token in range(1, 99):
        starts.append(starts[-1] + LATENCY.step((), 1, 10 + token))
    comes_s = (starts[40] + starts[41]) / 2
    run = Service(service(), [Arrival(0, 10, 100), Arrival(comes_s, 10, 2)]).run()
    assert run.finished.times("queue")[0] == pytest.approx(starts[41] - comes_s)


@pytest.mark.parametrize("seed", range(8))
def test_many_steps_at_once_give_the_same_times(seed: int) -> None:
    check_seed(seed)


@pytest.mark.parametrize("seed", range(8))
def test_they_do_with_windows(seed: int) -> None:
    """One group with windows alone, or one beside another that sees everything."""
    windowed = (CacheGroup(window=40), CacheGroup(window=100))
    check_seed(seed, (windowed, (CacheGroup(), CacheGroup(window=40)))[seed // 4])


def check_seed(seed: int, groups: tuple[CacheGroup, ...] = ONE_GROUP) -> None:
    source = random.Random(seed)
    arrivals = poisson(source.choice((5, 30, 200)), 40, (3, 40, 300, 900), (1, 2, 30, 100), seed)
    if seed % 2:
        arrivals = [
            one._replace(shared=(source.randrange(3),), shared_tokens=48, priority=at % 3)
            for at, one in enumerate(arrivals)
        ]
    made = engine(
        groups=groups,
        num_blocks=source.choice((80, 150, 2000)) * len(groups),
        max_num_seqs=source.choice((2, 16, 256)),
        max_num_batched_tokens=source.choice((256, 2048)),
        max_step_ms=source.choice((0.0, 9.0)),
        prefix_caching=bool(seed % 3),
    )
    chosen: dict[str, Any] = source.choice(
        [
            {"replicas": 2, "routing": "prefix-aware"},
            {"replicas": 2, "failures": FailureSettings(at=((0.7, 0), (1.1, 1)), mttr_s=1.0)},
            {"disaggregation": Disaggregation(prefill_replicas=1, decode_replicas=2,
                                              kv_bytes_per_token=1e5, link_bytes_per_s=1e10)},
            {"autoscale": AutoscaleSettings(by="queue", target=2, least=1, most=3,
                                            cold_start_s=(0.5, 1), interval_s=0.3,
                                            down_after_s=1)},
        ]
    )  # fmt: skip
    quick = Service(service(made, **chosen), arrivals).run()
    slow = Service(service(replace(made, single_steps=True), **chosen), arrivals).run()
    assert _ended(quick) == _ended(slow)
    assert len(quick.finished) == len(arrivals)
    for name in TIMES:
        assert quick.finished.times(name) == pytest.approx(slow.finished.times(name), nan_ok=True)
    assert quick.preemptions == slow.preemptions
    for one, two in zip(quick.replicas, slow.replicas, strict=True):
        assert one.steps == two.steps
        assert one.generated_tokens == two.generated_tokens
        assert one.busy_s == pytest.approx(two.busy_s)
        assert one.batch_s == pytest.approx(two.batch_s)


def _ended(run: Run) -> list[tuple[float, int, int]]:
    finished = run.finished
    columns = (finished.arrived_s, finished.prompt_tokens, finished.cached_tokens)
    return list(zip(*columns, strict=True))


def test_shared_beginnings_are_found_in_the_scheduler_s_own_prefix_tree() -> None:
    shared = {"shared": (7, 8), "shared_tokens": 64}
    arrivals = [
        Arrival(0, 150, 2, **shared),  # type: ignore[arg-type]
        Arrival(1, 200, 2, **shared),  # type: ignore[arg-type]
        Arrival(2, 200, 2, 0, (7, 9), 64),
        Arrival(3, 200, 2),
    ]
    run = Service(service(), arrivals).run()
    assert list(run.finished.cached_tokens) == [0, 128, 64, 0]
    assert run.replicas[0].hit_tokens == 192
    assert run.replicas[0].query_tokens == 750


def test_prompts_are_equal_where_their_blocks_are_and_nowhere_else() -> None:
    writer = PromptWriter()
    one = writer.prompt(Arrival(0, 10, 1, 0, (2**63, 5), 4), 0)
    two = writer.prompt(Arrival(0, 10, 1, 0, (2**63, 6), 4), 1)
    assert one[:4] == two[:4]
    assert not set(one[4:]) & set(two[4:])
    assert one[8:] == [own_token(0)] * 2
    assert writer.prompt(Arrival(0, 6, 1, 0, (5, 5), 4), 2) == [one[4]] * 6
