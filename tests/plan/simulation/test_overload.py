"""A load beyond the capacity of a service is called one, with the capacity; others are not."""

from __future__ import annotations

import pytest

from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.result import SimulationResult
from headrace.plan.simulation.simulate import simulate
from tests.plan.simulation.services import engine, poisson, service

# With 4 requests at once a replica serves some 12 such requests a second.
FEW = engine(max_num_seqs=4)
PROMPTS, OUTPUTS = (100,), (40,)


def ran(rate: float, count: int, replicas: int = 1, seed: int = 0) -> SimulationResult:
    load = poisson(rate, count, PROMPTS, OUTPUTS, seed)
    return simulate(service(FEW, replicas=replicas), load)


def capacity() -> float:
    """Requests per second of a replica that always has more to do."""
    result = simulate(service(FEW), [Arrival(0, 100, 40) for _ in range(200)])
    return result.requests_per_s


def test_an_overload_is_named_with_the_capacity() -> None:
    most = capacity()
    result = ran(2 * most, 300)
    found = result.overload
    assert found is not None
    assert found.served_per_s == pytest.approx(most, rel=0.1)
    assert found.arrived_per_s == pytest.approx(2 * most, rel=0.15)
    assert found.waiting > 50
    said = found.text(1)
    assert f"{found.served_per_s:,.3g} can be served" in said
    assert f"{found.waiting:,} wait then" in said
    assert "about --replicas 2," in said or "about --replicas 3," in said
    assert result.as_dict()["overload"]["waiting"] == found.waiting


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_service_that_keeps_up_is_not_called_overloaded(seed: int) -> None:
    assert ran(0.85 * capacity(), 200, seed=seed).overload is None


def test_twice_the_replicas_keep_up_with_what_one_does_not() -> None:
    rate = 1.6 * capacity()
    assert ran(rate, 250).overload is not None
    assert ran(rate, 250, replicas=2).overload is None


def test_a_burst_that_is_served_before_the_load_ends_is_none() -> None:
    burst = [Arrival(0.0, 100, 40) for _ in range(40)]
    later = [Arrival(20.0 + at, 100, 40) for at in range(20)]
    assert simulate(service(FEW), [*burst, *later]).overload is None


def test_all_at_once_or_almost_nothing_is_none() -> None:
    assert simulate(service(FEW), [Arrival(0.0, 100, 40) for _ in range(50)]).overload is None
    assert simulate(service(FEW), [Arrival(0.0, 10, 2)]).overload is None
