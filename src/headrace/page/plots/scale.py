"""Where a value stands on an axis, and which values are written beside it.

Ticks are multiples of 1, 2 or 5 times a power of ten, so that they can be read at a glance. Knows
no SVG.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOG_BEYOND = 20.0
"""Where the largest of the values is so many times the smallest, a linear axis shows one corner."""


@dataclass(frozen=True, slots=True)
class Scale:
    """[low, high] of values on [start, end] of the plot, in pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Clamped to the axis: what lies outside is drawn on its edge."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """At most about so many, ascending, none outside the axis."""
        return _log_ticks(self, most) if self.logarithmic else _linear_ticks(self, most)


def linear(values: Sequence[float], start: float, end: float, *, zero: bool = True) -> Scale:
    """Around the values, rounded out to whole ticks; from 0 unless told otherwise."""
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _step((high - low) / 5)
    return Scale(math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step, start, end)


def exact(low: float, high: float, start: float, end: float) -> Scale:
    """Linear, not rounded out; of time, where the run begins and ends."""
    return Scale(low, high if high > low else low + 1.0, start, end)


def logarithmic(values: Sequence[float], start: float, end: float) -> Scale:
    """Around those the values that are above 0, rounded out to 1, 2 or 5 times a power of ten."""
    above = [value for value in values if value > 0]
    low, high = (_rounded(min(above), down=True), _rounded(max(above))) if above else (1.0, 10.0)
    if high <= low:
        low, high = low / 2, high * 2
    return Scale(low, high, start, end, logarithmic=True)


def suited(values: Sequence[float], start: float, end: float) -> Scale:
    """Logarithmic where the values spread further than LOG_BEYOND."""
    above = [value for value in values if value > 0]
    if len(above) == len(values) and above and max(above) > LOG_BEYOND * min(above):
        return logarithmic(values, start, end)
    return linear(values, start, end)


def step_label(low: float, high: float, most: int = 6) -> Callable[[float], str]:
    """Writes ticks of a linear axis with as many digits as tell them apart."""
    step = _step((high - low) / most)
    digits = max(0, -math.floor(math.log10(step)))
    return lambda value: f"{value:,.{digits}f}"


def _step(at_least: float) -> float:
    decade = 10.0 ** math.floor(math.log10(at_least))
    return next(
        (decade * multiple for multiple in (1, 2, 5) if decade * multiple >= at_least), decade * 10
    )


def _linear_ticks(scale: Scale, most: int) -> list[float]:
    step = _step((scale.high - scale.low) / most)
    first = math.ceil(scale.low / step - 1e-9)
    last = math.floor(scale.high / step + 1e-9)
    # Rounded, so that a tick is 0.3 and not 0.30000000000000004.
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(at * step, digits) for at in range(first, last + 1)]


def _log_ticks(scale: Scale, most: int) -> list[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if scale.low * 0.999 <= tick <= scale.high * 1.001]
        if len(inside) <= most:
            return inside
    every = max(1, math.ceil(len(inside) / most))
    return inside[::every]


def _rounded(value: float, *, down: bool = False) -> float:
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [decade * multiple for multiple in (1, 2, 5, 10)]
    if down:
        return max(step for step in steps if step <= value * 1.000001)
    return min(step for step in steps if step >= value * 0.999999)
