"""How many tokens prompts and answers are to have: `512`, `128..1024`, `normal(512,64)`, `100,200`.

A number is the same for all; `low..high` is uniform, both ends included; `normal(mean,deviation)`
may be followed by the least and the greatest (`normal(512,64,1,2048)`) and draws again what falls
outside; numbers with commas are taken in turn. Lengths of a trace come in pairs, because long
prompts and long answers are not independent of each other there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import cycle, islice
from typing import NamedTuple, Protocol

import msgspec

from headrace.errors import ConfigError, shown

# Longer than any context that is served; a typing error of three digits more would fill the memory.
MAX_TOKENS = 10_000_000
# A normal distribution of which so little is inside its limits is not meant; then the nearest is.
_REDRAWS = 100

_EXAMPLES = "write 512, 128..1024, normal(512,64) or 100,200,300"
_NORMAL = re.compile(r"normal\((?P<numbers>[^()]*)\)")


class Lengths(Protocol):
    """A distribution of token counts, each from 1 to MAX_TOKENS."""

    def draw(self, count: int, source: random.Random) -> Sequence[int]: ...


class Fixed(msgspec.Struct, frozen=True):
    """A constant length."""

    tokens: int

    def draw(self, count: int, source: random.Random) -> Sequence[int]:
        """As asked; nothing is drawn from the source."""
        return (self.tokens,) * count


class Uniform(msgspec.Struct, frozen=True):
    """A uniform distribution of lengths from low to high."""

    low: int
    high: int

    def draw(self, count: int, source: random.Random) -> Sequence[int]:
        """Independent draws."""
        return tuple(source.randint(self.low, self.high) for _ in range(count))


class Normal(msgspec.Struct, frozen=True):
    """Rounded draws of a normal distribution within limits."""

    mean: float
    deviation: float
    low: int = 1
    high: int = MAX_TOKENS

    def draw(self, count: int, source: random.Random) -> Sequence[int]:
        """Independent draws."""
        return tuple(self._one(source) for _ in range(count))

    def _one(self, source: random.Random) -> int:
        for _ in range(_REDRAWS):
            drawn = round(source.gauss(self.mean, self.deviation))
            if self.low <= drawn <= self.high:
                return drawn
        return min(max(round(self.mean), self.low), self.high)


class InTurn(msgspec.Struct, frozen=True):
    """A list's lengths in its order, again from the first when it ends."""

    tokens: tuple[int, ...]

    def draw(self, count: int, source: random.Random) -> Sequence[int]:
        """The first `count`; nothing is drawn from the source."""
        return tuple(islice(cycle(self.tokens), count))


class Size(NamedTuple):
    """The lengths of one request."""

    prompt_tokens: int
    output_tokens: int


class Sizes(Protocol):
    """A distribution of both lengths together."""

    def draw(self, count: int, source: random.Random) -> Sequence[Size]: ...


class Independent(msgspec.Struct, frozen=True):
    """Prompts and answers whose lengths have nothing to do with each other."""

    prompts: Lengths
    outputs: Lengths

    def draw(self, count: int, source: random.Random) -> Sequence[Size]:
        """All prompts are drawn first: other answers leave the prompts as they are."""
        prompts = self.prompts.draw(count, source)
        outputs = self.outputs.draw(count, source)
        return tuple(map(Size, prompts, outputs))


class FromPairs(msgspec.Struct, frozen=True):
    """Pairs that were seen somewhere, drawn with equal chances and again and again."""

    pairs: tuple[Size, ...]

    def draw(self, count: int, source: random.Random) -> Sequence[Size]:
        """Raises ConfigError where there are no pairs."""
        if not self.pairs:
            raise ConfigError("lengths: the trace has no rows to draw from; use one that has")
        return tuple(source.choices(self.pairs, k=count))


def around(mean: int, ratio: float) -> Fixed | Uniform:
    """mean·(1 − ratio) to mean·(1 + ratio), which vllm calls --random-range-ratio."""
    if not 1 <= mean <= MAX_TOKENS // 2:
        raise ConfigError(f"length {mean}: must be from 1 to {MAX_TOKENS // 2}")
    if not 0 <= ratio < 1:
        raise ConfigError(f"range ratio {shown(ratio)}: must be from 0 to below 1, like 0.2")
    low, high = max(1, int(mean * (1 - ratio))), int(mean * (1 + ratio))
    return Fixed(mean) if low == high else Uniform(low, high)


def parse_lengths(text: str, field: str) -> Lengths:
    """Read a distribution. ConfigError names `field`, the value, the limit and what to write."""
    plain = "".join(text.split()).replace("_", "")
    normal = _NORMAL.fullmatch(plain)
    if normal:
        return _normal(normal["numbers"].split(","), text, field)
    if ".." in plain:
        low, high = (_tokens(part, text, field) for part in plain.split("..", 1))
        if low > high:
            raise ConfigError(f"{field} {shown(text)}: {low} is above {high}; swap them")
        return Uniform(low, high)
    listed = tuple(_tokens(part, text, field) for part in plain.split(","))
    return Fixed(listed[0]) if len(listed) == 1 else InTurn(listed)


def _normal(numbers: Sequence[str], text: str, field: str) -> Normal:
    if not 2 <= len(numbers) <= 4:
        raise ConfigError(
            f"{field} {shown(text)}: has {len(numbers)} numbers; write normal(mean,deviation) or "
            "normal(mean,deviation,least,greatest)"
        )
    mean, deviation = (_number(part, text, field) for part in numbers[:2])
    limits = [_tokens(part, text, field) for part in numbers[2:]]
    low = limits[0] if limits else 1
    high = limits[1] if len(limits) > 1 else MAX_TOKENS
    if not low <= mean <= high:
        raise ConfigError(f"{field} {shown(text)}: the mean {mean:g} is not from {low} to {high}")
    return Normal(mean, deviation, low, high)


def _tokens(part: str, text: str, field: str) -> int:
    if not (part.isascii() and part.isdigit()):
        raise ConfigError(
            f"{field} {shown(text)}: {shown(part)} is not a whole number; {_EXAMPLES}"
        )
    # A number of thousands of digits is out of range long before int() would refuse it.
    tokens = int(part) if len(part.lstrip("0")) <= len(str(MAX_TOKENS)) else MAX_TOKENS + 1
    if not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"{field} {shown(text)}: {part[:20]} is not from 1 to {MAX_TOKENS}")
    return tokens


def _number(part: str, text: str, field: str) -> float:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", part):
        raise ConfigError(f"{field} {shown(text)}: {shown(part)} is not a number; {_EXAMPLES}")
    return float(part)
