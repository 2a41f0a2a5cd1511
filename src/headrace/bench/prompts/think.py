"""How long a user thinks between an answer and the next question.

`2`, `500ms`, `1..5`, `exponential(4)`; numbers are seconds. Times are whole nanoseconds.
"""

from __future__ import annotations

import random
import re

import msgspec

from headrace.errors import ConfigError, shown

NS_PER_S = 1_000_000_000
# A day: longer than a run in which anybody waits for the next turn.
MAX_THINK_S = 86_400.0

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_ONE = re.compile(rf"(?P<number>{_NUMBER})(?P<unit>ms|s)?")
_EXPONENTIAL = re.compile(rf"exponential\((?P<mean>{_NUMBER}(?:ms|s)?)\)")


class ThinkTime(msgspec.Struct, frozen=True, kw_only=True):
    """Uniform from low to high, or, where there is a mean, exponential with it (memoryless)."""

    low_s: float = 0.0
    high_s: float = 0.0
    mean_s: float | None = None

    def draw_ns(self, source: random.Random) -> int:
        """One time."""
        if self.mean_s is not None:
            seconds = source.expovariate(1.0) * self.mean_s
            return round(min(seconds, MAX_THINK_S) * NS_PER_S)
        return round(source.uniform(self.low_s, self.high_s) * NS_PER_S)


def parse_think_time(text: str, field: str) -> ThinkTime:
    """Raises ConfigError that names `field` and says what may be written."""
    plain = "".join(text.split())
    drawn = _EXPONENTIAL.fullmatch(plain)
    if drawn:
        return ThinkTime(mean_s=_seconds(drawn["mean"], text, field))
    low, _, high = plain.partition("..")
    low_s = _seconds(low, text, field)
    high_s = _seconds(high, text, field) if ".." in plain else low_s
    if low_s > high_s:
        raise ConfigError(f"{field} {shown(text)}: {low} is above {high}; swap them")
    return ThinkTime(low_s=low_s, high_s=high_s)


def _seconds(part: str, text: str, field: str) -> float:
    found = _ONE.fullmatch(part)
    if not found:
        raise ConfigError(
            f"{field} {shown(text)}: {shown(part)} is not a time; write seconds like 2, "
            "500ms, 1..5 or exponential(4)"
        )
    seconds = float(found["number"]) / (1000 if found["unit"] == "ms" else 1)
    if seconds > MAX_THINK_S:
        raise ConfigError(f"{field} {shown(text)}: {part} is above {MAX_THINK_S:g} s, a day")
    return seconds
