"""Why figures of a comparison should not be relied on: signs in them of an uneven machine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from headrace.bench.against.turns import CaseResult
from headrace.telemetry.machine import Limits

_ABOVE = 1.05
"""A ratio may exceed the largest possible one by so much: both are medians of what varies."""
_APART = 1.5
"""The largest of several figures by the smallest, while nothing disturbed them."""
_IMPOSSIBLE = (
    "its ratio is above the largest possible: the model lies in the CPU's caches, or the machine's "
    "speed changed"
)
_UNEVEN = "the machine was not idle, or its speed changed"


def doubts_of_row(result: CaseResult) -> list[str]:
    """What says against the figures of a case; empty where nothing does."""
    found = []
    most = result.most_ratio
    if most is not None and result.ours and median(result.ratios) > _ABOVE * most:
        found.append(_IMPOSSIBLE)
    for name, figures in (("headrace", result.ours), ("the peer", result.peer)):
        factor = _factor(figures)
        if factor > _APART:
            found.append(f"runs of {name} differ by a factor of {factor:.1f}: {_UNEVEN}")
    return found


def doubts_of_machine(limits: Sequence[Limits]) -> list[str]:
    """What says against the limits, and so against every share of them."""
    factor = _factor([limit.bytes_per_s for limit in limits])
    if factor <= _APART:
        return []
    return [f"readings of the memory's bandwidth differ by a factor of {factor:.1f}: {_UNEVEN}"]


def _factor(figures: Sequence[float]) -> float:
    """The largest by the smallest; of many without the outermost quarters, as single runs that were
    disturbed move no median."""
    ranked = sorted(figures)
    outer = len(ranked) // 4
    kept = ranked[outer : len(ranked) - outer]
    return kept[-1] / kept[0] if kept and kept[0] > 0 else 1.0
