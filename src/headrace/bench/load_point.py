"""One run among several at different loads: what was offered, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.bench.cost import batching_efficiency
from headrace.bench.definitions import definition as definition_named
from headrace.bench.statistics import Distribution
from headrace.bench.summary import Summary


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One run of a sweep: what was offered, what came of it. None: not measured."""

    name: str
    offered_per_s: float | None
    rps: float
    tps_system: float
    ttft: Distribution | None
    """TTFT from the intended send time."""
    tpot: Distribution | None
    e2e: Distribution | None
    in_flight: float | None
    goodput_fraction: float | None
    met: bool | None
    """With `goodput_fraction`: none without an SLO."""
    good: int | None = None
    judged: int = 0
    """With `good`: requests that met its limits of each request, of those that met or missed
    them."""
    users: int | None = None
    """Users of a closed loop."""


_SCHEDULED: float = -1.0


def load_point(
    name: str,
    summary: Summary,
    offered_per_s: float | None = _SCHEDULED,
    *,
    users: int | None = None,
) -> LoadPoint | None:
    """None of a run in which nothing was completed.

    offered_per_s: None of a closed loop, which offers no rate; by default that of the schedule.
    """
    if not summary.rps:
        return None
    under = definition_named(summary.definition)
    got = {}
    for canonical in ("ttft", "tpot", "e2e"):
        metric = under.metric(canonical)
        spread = None if metric is None else summary.from_intended.get(metric.name)
        got[canonical] = None if spread is None else spread.distribution
    good = summary.goodput
    return LoadPoint(
        name=name,
        offered_per_s=summary.offered_per_s if offered_per_s == _SCHEDULED else offered_per_s,
        rps=summary.rps,
        tps_system=summary.tps_system or 0.0,
        ttft=got["ttft"],
        tpot=got["tpot"],
        e2e=got["e2e"],
        in_flight=summary.concurrency.mean,
        goodput_fraction=None if good is None else good.fraction,
        met=None if good is None else good.met,
        good=None if good is None else good.good,
        judged=0 if good is None else good.judged,
        users=users,
    )


def by_load(points: Sequence[LoadPoint]) -> Callable[[LoadPoint], tuple[float, float]]:
    """What to sort these runs by: not throughput, for past saturation the curve turns back on
    itself, but users where all are closed loops, else the rate that was offered."""
    if all_closed(points):
        return lambda of: (of.users or 0, of.rps)
    return lambda of: (of.offered_per_s or of.rps, of.rps)


def all_closed(points: Sequence[LoadPoint]) -> bool:
    """Whether the load of each is a number of users."""
    return all(one.users is not None and one.offered_per_s is None for one in points)


def efficiencies(points: Sequence[tuple[float | None, float | None]]) -> list[float | None]:
    """Of output tokens a second and mean requests in flight, load by load, the lone one first: how
    much of as many lone requests' throughput each load had. None where one of them is not known."""
    alone = points[0][0] if points else None
    return [
        None
        if alone is None or tokens_per_s is None or in_flight is None
        else batching_efficiency(tokens_per_s, in_flight, alone)
        for tokens_per_s, in_flight in points
    ]
