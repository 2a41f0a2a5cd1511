"""Simulations against what queueing theory says of them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.service import Run, Service
from headrace.plan.simulation.stream import Lane, in_lanes
from headrace.plan.step.latency_model import LatencyModel
from tests.plan.simulation.services import engine, poisson, service

# One token is one step of a second and a prompt adds to it; nothing else takes time.
SECONDS = LatencyModel(
    step_s=1.0,
    prefill_token_s=0.01,
    prefill_pair_s=0.0,
    decode_request_s=0.0,
    decode_context_token_s=0.0,
)
ONE_AT_A_TIME = engine(latency=SECONDS, max_num_seqs=1, prefix_caching=False)


def in_system(run: Run, arrivals: list[Arrival]) -> float:
    """Requests that wait or run, by time, counted from arrivals and ends."""
    ends = np.array(run.finished.arrived_s) + run.finished.times("e2e")
    events = [(one.at_s, 1) for one in arrivals] + [(float(end), -1) for end in ends]
    area = there = last = 0.0
    for at_s, change in sorted(events):
        area += there * (at_s - last)
        there, last = there + change, at_s
    return area / last


@pytest.mark.long
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_queue_of_equal_requests_is_that_of_m_d_1(load: float) -> None:
    service_s = 1.0 + 0.01 * 100
    arrivals = poisson(load / service_s, 12_000, (100,), (1,))
    waits = Service(service(ONE_AT_A_TIME), arrivals).run().finished.times("queue")
    assert waits.mean() == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.1)


@pytest.mark.long
def test_the_queue_of_unequal_requests_is_pollaczek_and_khinchine_s() -> None:
    prompts, outputs = (100, 300), (1, 4)
    times = np.array([0.01 * prompt + output for prompt in prompts for output in outputs])
    rate = 0.6 / times.mean()
    run = Service(service(ONE_AT_A_TIME), poisson(rate, 12_000, prompts, outputs)).run()
    expected = rate * (times**2).mean() / (2 * (1 - 0.6))
    assert run.finished.times("queue").mean() == pytest.approx(expected, rel=0.1)
    assert run.replicas[0].busy_s / run.end_s == pytest.approx(0.6, rel=0.05)


def test_little_s_law_holds_with_batches_and_chunks() -> None:
    arrivals = poisson(30, 500, (50, 500, 2000), (1, 20, 80))
    run = Service(service(replicas=2, sample_s=0.25), arrivals).run()
    mean_s = float(run.finished.times("e2e").mean())
    expected = len(arrivals) / run.end_s * mean_s
    assert in_system(run, arrivals) == pytest.approx(expected, rel=1e-6)
    sampled = np.mean([one.waiting + one.running for one in run.points])
    assert sampled == pytest.approx(expected, rel=0.1)


def test_least_loaded_waits_less_than_round_robin() -> None:
    arrivals = poisson(1.2, 2000, (20, 800), (1,))
    waits = {
        routing: Service(service(ONE_AT_A_TIME, replicas=8, routing=routing), arrivals).run()
        for routing in ("round-robin", "least-loaded")
    }
    means = {name: run.finished.times("queue").mean() for name, run in waits.items()}
    assert means["least-loaded"] < 0.7 * means["round-robin"]


def test_more_urgent_requests_wait_less() -> None:
    lanes = (Lane(0, 0.3), Lane(5, 0.7))
    arrivals = list(in_lanes(poisson(0.45, 3000, (100,), (1,)), lanes))
    finished = Service(service(ONE_AT_A_TIME), arrivals).run().finished
    priorities, waits = np.array(finished.priorities), finished.times("queue")
    assert 0.25 < (priorities == 0).mean() < 0.35
    assert waits[priorities == 0].mean() < 0.3 * waits[priorities == 5].mean()
