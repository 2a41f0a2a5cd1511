"""A cascade of two models that are planned: by hand, and what it cannot say."""

from __future__ import annotations

import json

import pytest

from headrace.errors import ConfigError
from headrace.plan.cost.break_even import Fleet
from headrace.plan.cost.cascade_plan import cascade_plan
from headrace.plan.cost.cost_plan import CostOption, CostPlan
from headrace.plan.quantity import Quantity
from headrace.plan.speed.speed import Load

LOAD = Load(prompt_tokens=900, output_tokens=100)


def way(id: str, name: str, usd_per_million: float, low: float, high: float) -> CostOption:
    cost = Quantity(id, name, usd_per_million, "USD/1M tokens", "P2", (), low, high)
    return CostOption(
        cost=cost, usd_per_request=usd_per_million / 1000, parts={}, source="test", as_of="",
        fleet=Fleet(usd_per_month=1, capacity_tokens_per_month=1),
    )  # fmt: skip


def planned(name: str, ways: tuple[CostOption, ...], e2e_s: float | None) -> CostPlan:
    times: tuple[Quantity, ...] = ()
    if e2e_s is not None:
        times = (Quantity("speed.e2e", "E2E", e2e_s, "s", "F3", (), e2e_s / 2, e2e_s * 2),)
    return CostPlan(
        model=name, load=LOAD, hardware=None, devices=0, served=None, speed_figures=times,
        ways=ways, crossings=(), missing=(), notes=(),
    )  # fmt: skip


SMALL = planned("small", (way("cost.rented", "rented", 0.1, 0.05, 0.2),), 0.5)
LARGE = planned(
    "large",
    (way("cost.rented", "rented", 1.0, 0.5, 2.0), way("cost.api.x", "API (x)", 2.0, 2.0, 2.0)),
    2.0,
)


def test_f25_a_tenth_passed_on_takes_0_7_seconds() -> None:
    found = cascade_plan(SMALL, LARGE, 0.1)
    (only,) = found.ways
    assert only.cost.value == pytest.approx(0.1e-3 + 0.1 * 1e-3)
    assert only.cost.band == pytest.approx((0.1e-3, 0.4e-3))
    assert only.most_escalation == pytest.approx(0.9)
    assert found.latency is not None and found.worst_latency is not None
    assert found.latency.value == pytest.approx(0.7)
    assert found.latency.band == pytest.approx((0.35, 1.4))
    assert found.worst_latency.value == pytest.approx(2.5)
    assert [one.id for one in found.figures] == [
        "cascade.rented", "cascade.latency", "cascade.worst-latency",
    ]  # fmt: skip
    assert json.loads(json.dumps(found.as_dict()))["escalation"] == 0.1


def test_apis_pair_from_the_cheapest_and_state_no_latency() -> None:
    ways = (way("cost.api.a", "API (a)", 0.1, 0.1, 0.1), way("cost.api.b", "API (b)", 9, 9, 9))
    found = cascade_plan(planned("small", ways, None), LARGE, 0.25)
    assert found.ways[0].cost.name == "API (a), then API (x)"
    assert found.ways[0].cost.value == pytest.approx(0.1e-3 + 0.25 * 2e-3)
    assert found.ways[0].cost.is_exact
    assert found.latency is None and "no latency" in found.notes[0]


def test_a_dear_small_model_never_pays() -> None:
    found = cascade_plan(LARGE, SMALL, 0.0)
    assert found.ways[0].most_escalation == 0
    assert found.ways[0].cost.value == found.ways[0].small_usd


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(ConfigError, match=r"escalation is 1\.5; it must be from 0 to 1"):
        cascade_plan(SMALL, LARGE, 1.5)
    sold = planned("sold", (way("cost.api.a", "API (a)", 1, 1, 1),), None)
    with pytest.raises(ConfigError, match=r"cannot be paid for in the same way.*--rent"):
        cascade_plan(SMALL, sold, 0.1)
