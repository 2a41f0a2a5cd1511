"""Budgets that near their end: one alert for each threshold and window."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.gateway.accounts.counters import Counted
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.terms import Level, Unit
from headrace.gateway.accounts.window import Window

_MILLIONTHS = 10**6
_TEN_YEARS_MS = 10 * 365 * 86_400_000


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that a budget's use has reached one of its thresholds."""

    level: Level
    name: str
    unit: Unit
    model: str
    """The models that the budget covers, as a glob."""
    window: Window
    threshold: float
    limit: int
    used: int
    at_ms: int
    """When, in milliseconds since 1970."""
    resets_at_ms: int | None
    """When a calendar window ends; None for a rolling one."""


class Crossing(msgspec.Struct, frozen=True):
    """An alert, and the mark by which only the first in its window is given."""

    alert: Alert
    mark: str
    until_ms: int


def may_cross(counted: Counted, used: int) -> bool:
    """Whether `crossings` has to be called: nearly all settlements stay below or between
    thresholds.

    If a budget is below its lowest threshold by a thousandth, rounding cannot matter. It has at
    least one.
    """
    meter = counted.meter
    limit = meter.amount if meter.raised_to is None else min(meter.amount, meter.raised_to)
    return used >= 0.999 * min(meter.thresholds) * limit


def crossings(
    counted: Counted, used: int, at_ms: int, *, is_late: bool = False
) -> Iterator[Crossing]:
    """Thresholds that this settlement went over, used being what it came to. is_late: it was
    counted after others that came behind it: any below what is used may be its own."""
    meter = counted.meter
    if not meter.is_budget or counted.actual == 0:
        return
    limit = meter.limit(at_ms)
    for threshold in meter.thresholds:
        level = -(-round(threshold * _MILLIONTHS) * limit // _MILLIONTHS)
        if (is_late or used - counted.actual < level) and level <= used:
            yield _crossing(meter, threshold, limit, used, at_ms)


def _crossing(meter: Meter, threshold: float, limit: int, used: int, at_ms: int) -> Crossing:
    window = meter.window
    ends_ms = window.leaves_ms(window.bucket(at_ms)) if window.calendar else None
    until_ms = ends_ms or at_ms + (window.length_ms or _TEN_YEARS_MS)
    which = window.bucket(at_ms) if window.calendar else "rolling"
    alert = Alert(
        level=meter.level,
        name=meter.name,
        unit=meter.unit,  # type: ignore[arg-type]
        model=meter.model,
        window=window,
        threshold=threshold,
        limit=limit,
        used=used,
        at_ms=at_ms,
        resets_at_ms=ends_ms,
    )
    # A budget that was raised is another one to be warned of.
    return Crossing(alert, f"{meter.id}|{limit}|{threshold}|{which}", until_ms)
