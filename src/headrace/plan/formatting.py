"""How figures of a plan are written for people: in the unit that suits their size."""

from __future__ import annotations

import math

from headrace.page.figures import DASH, duration, figure, share

_SIZES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SCALED = {
    "byte": "B", "byte/s": "B/s", "FLOP/s": "FLOP/s", "operation/s": "operation/s",
    "byte/request": "B/request", "byte/token": "B/token", "tokens/month": " tokens/month",
    "operation/step": " operations", "byte/step": "B",
}  # fmt: skip


def shown(value: float | str | None, unit: str, *, whole: bool = False) -> str:
    """`value` with its unit: 80.3 GB, 12.4 ms, 45 %, $0.35, 8,030,261,248 parameters.

    whole: with more digits than three, as inputs are shown, which are not estimates.
    """
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    if value is None or math.isnan(value):
        return DASH
    if unit == "s":
        return duration(value * 1e3)
    if unit == "share":
        return share(value)
    if unit.startswith("USD"):
        return f"${figure(value)}{unit.removeprefix('USD')}"
    if unit in _SCALED:
        return _scaled(value, _SCALED[unit])
    exact = whole or value == int(value) if math.isfinite(value) else False
    return f"{number(value) if exact else figure(value)} {unit}".strip()


def number(value: float) -> str:
    """Whole ones whole, others with six digits that count."""
    if math.isfinite(value) and (value == int(value) or abs(value) >= 1e6):
        return f"{value:,.0f}"
    return f"{value:,.6g}"


def _scaled(value: float, unit: str) -> str:
    for size, prefix in _SIZES:
        if abs(value) >= size:
            gap = "" if unit.startswith(" ") else " "
            return f"{figure(value / size)}{gap if gap else ' '}{prefix}{unit}"
    return f"{number(value)} {unit.strip()}"


def band(low: float | None, high: float | None, unit: str) -> str:
    """Both ends, or "exact" where they are one."""
    return "exact" if low == high else f"{shown(low, unit)} to {shown(high, unit)}"
