"""How numbers are written in reports: three digits that count, with their unit.

One rule for tables, plots and pages, so that the same figure looks the same everywhere.
"""

from __future__ import annotations

import math

DASH = "–"
"""Stands where there is no figure."""


def figure(value: float | None) -> str:
    """Three significant digits, more before the point where there are more: 0.0123, 1.23, 1,234."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(size)))
    rounded = round(value, digits)
    # 9.996 rounds up to 10.00, which has a digit too many.
    if abs(rounded) >= 10 ** (3 - digits) and digits:
        digits -= 1
    return f"{rounded:,.{digits}f}"


def count(value: float | None) -> str:
    """Of whole things; weights that are not whole have one digit."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def share(value: float | None) -> str:
    """As per cent, with a digit where it is not far from all or nothing, two next to nothing."""
    if value is None:
        return DASH
    percent = value * 100
    if 0 < abs(percent) < 1:
        return f"{percent:.2f} %"
    near_an_end = 0 < abs(percent) < 10 or 90 < percent < 100
    return f"{percent:.1f} %" if near_an_end else f"{percent:.0f} %"


def duration(ms: float) -> str:
    """A time in the unit that suits it."""
    size = abs(ms)
    if size == 0:
        return "0"
    if size < 1:
        return f"{_trimmed(ms * 1000)} µs"
    if size < 1000:
        return f"{_trimmed(ms)} ms"
    if size < 120_000:
        return f"{_trimmed(ms / 1000)} s"
    return f"{_trimmed(ms / 60_000)} min"


def _trimmed(value: float) -> str:
    written = figure(value)
    return written.rstrip("0").rstrip(".") if "." in written else written


def compact(value: float) -> str:
    """For ticks: 12k, 3.4M, 0.5."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{_trimmed(value / min(size, 1e3 if suffix == 'k' else size))}{suffix}"
    return _trimmed(value)
