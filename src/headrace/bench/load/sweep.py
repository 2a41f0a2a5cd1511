"""From one request at a time to as many as are taken, and rates in between.

The rate of a synchronous run is what a lone user gets, that of a run with many users is what the
server makes of a full batch; the open-loop rates between them show at which load latency rises. It
knows neither clocks nor requests: whoever calls it runs the loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from headrace.bench.cost import batching_efficiency

R = TypeVar("R")

DEFAULT_POINTS = 8
MAX_POINTS = 100


class SweepPoint(NamedTuple, Generic[R]):
    """One load and its result. rate: that was offered; None for the closed loops at both ends."""

    name: str
    rate: float | None
    result: R


def sweep(
    points: int,
    *,
    synchronous: Callable[[], R],
    throughput: Callable[[], R],
    at_rate: Callable[[float], R],
    completed_per_s: Callable[[R], float | None],
    go_on: Callable[[], bool] = lambda: True,
    saturated: Callable[[R], bool] = lambda _: False,
) -> list[SweepPoint[R]]:
    """`points` loads in all, in ascending order of load, the two ends included.

    Rates are evenly spaced; where either end completed nothing there are none between. go_on: asked
    before each load, False after Ctrl-C. saturated: asked of each rate's result; True leaves the
    rates above it out.
    """
    alone = SweepPoint("synchronous", None, synchronous())
    if not go_on():
        return [alone]
    full = SweepPoint("throughput", None, throughput())
    low, high = completed_per_s(alone.result), completed_per_s(full.result)
    between: list[SweepPoint[R]] = []
    if low is not None and high is not None and 0 < low < high:
        for rate in rates(low, high, points - 2):
            if not go_on():
                break
            between.append(SweepPoint(f"{rate:.3g}/s", rate, at_rate(rate)))
            if saturated(between[-1].result):
                break
    return [alone, *between, full]


def rates(low: float, high: float, count: int) -> list[float]:
    """`count` of them, evenly, without the ends."""
    return [low + (high - low) * step / (count + 1) for step in range(1, count + 1)]


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
