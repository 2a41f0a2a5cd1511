"""A figure that sources give as a range: "2-4", "up to 23", "from 100", or one number.

Most published figures about speed are of this kind. Both ends belong to the range; an end that
nobody stated is None, which is not the same as 0 or infinity.
"""

from __future__ import annotations

import math
import re

import msgspec

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_BETWEEN = re.compile(rf"({_NUMBER})\s*(?:-|–|to)\s*({_NUMBER})")
_ONE_END = re.compile(rf"(up to|from)\s+({_NUMBER})")


class Span(msgspec.Struct, frozen=True):
    """A range from `low` to `high`, both included; None is an end that is not known."""

    low: float | None
    high: float | None

    @property
    def exact(self) -> float | None:
        """The number where both ends are the same one."""
        return self.low if self.low == self.high else None

    @property
    def middle(self) -> float | None:
        """Half way between the ends; None where one of them is not known."""
        if self.low is None or self.high is None:
            return None
        return (self.low + self.high) / 2

    def __contains__(self, number: float) -> bool:
        above = self.low is None or number >= self.low
        return above and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"up to {_plain(self.high)}"
        if self.high is None:
            return f"from {_plain(self.low)}"
        if self.low == self.high:
            return _plain(self.low)
        return f"{_plain(self.low)}-{_plain(self.high)}"


def parse_span(value: object) -> Span:
    """A Span from a number, a pair `[low, high]`, or text: "2-4", "up to 23", "from 100".

    Raises ValueError saying what is understood.
    """
    if isinstance(value, bool):
        raise ValueError("a truth value is not a figure")
    if isinstance(value, int | float):
        return _checked(float(value), float(value))
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = value
        if isinstance(low, int | float) and isinstance(high, int | float):
            return _checked(float(low), float(high))
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        if found := _BETWEEN.fullmatch(text):
            return _checked(float(found[1]), float(found[2]))
        if found := _ONE_END.fullmatch(text):
            end = float(found[2])
            return Span(None, end) if found[1] == "up to" else Span(end, None)
        if re.fullmatch(_NUMBER, text):
            return _checked(float(text), float(text))
    raise ValueError('write a number, [2, 4], "2-4", "up to 23" or "from 100"')


def _checked(low: float, high: float) -> Span:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("a figure is finite")
    if low > high:
        raise ValueError(f"it begins at {_plain(low)} and ends at {_plain(high)}, below that")
    return Span(low, high)


def _plain(number: float | None) -> str:
    """As people write it: without an exponent where that is short."""
    if number is None:
        return "?"
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:g}"
