"""How a programmed quantity varies: written as one short text, drawn from a random source.

`200` is always 200; `uniform:LOW:HIGH`; `normal:MEAN:DEVIATION`; `lognormal:MEDIAN:SIGMA`, sigma
being that of the logarithm. Draws are never below 0. Knows no units.
"""

from __future__ import annotations

import math
from random import Random
from typing import Literal, NamedTuple

from headrace.errors import ConfigError, shown

Kind = Literal["constant", "uniform", "normal", "lognormal"]

_WRITTEN: dict[str, str] = {
    "uniform": "uniform:LOW:HIGH",
    "normal": "normal:MEAN:DEVIATION",
    "lognormal": "lognormal:MEDIAN:SIGMA",
}
FORMS = "a number, " + ", ".join(_WRITTEN.values())
# The logarithm's deviation: e^5 is a factor of 150, more than any server's times spread.
_MAX_SIGMA = 5.0


class Spread(NamedTuple):
    """A distribution; what `first` and `second` are depends on `kind`."""

    kind: Kind
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, value: str | float, *, field: str, least: float, most: float) -> Spread:
        """Read `value`; numbers are limited to `least`..`most`. ConfigError names `field`."""
        words = str(value).strip().split(":")
        name, numbers = (words[0], words[1:]) if words[0] in _WRITTEN else ("constant", words)
        try:
            found = [float(number) for number in numbers]
        except ValueError:
            found = []
        if len(found) != (1 if name == "constant" else 2):
            raise ConfigError(f"{field}: {shown(value)} is not a distribution; write {FORMS}")
        limited = found if name == "uniform" else found[:1]
        for number in limited:
            if not least <= number <= most:  # not a number fails this too
                raise ConfigError(
                    f"{field}: {number:g} in {shown(value)} is not in {least:g} to {most:g}"
                )
        return cls._checked(name, found, value, field, most)

    @classmethod
    def _checked(
        cls, name: str, found: list[float], value: str | float, field: str, most: float
    ) -> Spread:
        if name == "constant":
            return cls("constant", found[0])
        first, second = found
        if name == "uniform":
            if second < first:
                raise ConfigError(
                    f"{field}: {shown(value)} ends below its beginning; write {_WRITTEN[name]}"
                )
            return cls("uniform", first, second)
        limit = most if name == "normal" else _MAX_SIGMA
        if not 0 <= second <= limit:
            raise ConfigError(
                f"{field}: the deviation {second:g} in {shown(value)} is not in 0 to {limit:g}"
            )
        return cls("normal" if name == "normal" else "lognormal", first, second)

    def draw(self, random: Random) -> float:
        """One value, at least 0. A constant takes nothing from `random`."""
        if self.kind == "constant":
            return self.first
        if self.kind == "uniform":
            return random.uniform(self.first, self.second)
        if self.kind == "normal":
            return max(0.0, random.gauss(self.first, self.second))
        return self.first * math.exp(random.gauss(0.0, self.second))

    def draw_whole(self, random: Random, least: int = 1) -> int:
        """One whole number, at least `least`; a uniform one has both its ends as often as others.

        That needs whole ends; others are rounded inwards.
        """
        if self.kind == "uniform":
            low, high = math.ceil(self.first), math.floor(self.second)
            return max(least, random.randint(low, max(low, high)))
        return max(least, round(self.draw(random)))
