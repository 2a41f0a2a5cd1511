"""Requests as they come: drawn at a rate, or replayed from a trace, once or day and night."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headrace.errors import ConfigError, shown
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.validation import above_zero, not_above, share

_NS_PER_S = 1_000_000_000
_HOUR_S = 3600.0
MOST_DRAWN = 100_000_000
"""A day of a thousand requests a second, which takes hours to simulate."""
_CHUNK = 1024
_NEAR_S = 30.0
"""How far from its original a copy of a request comes."""


# Below it drawn gaps are all 0, and time does not pass.
_LEAST_BURSTINESS = 0.001


class Lengths(Protocol):
    """A distribution of token counts."""

    def draw(self, count: int, source: random.Random) -> Sequence[int]: ...


class TraceRow(Protocol):
    """A request of a trace: nanoseconds from the first one, tokens, ids of blocks if it has any."""

    @property
    def at_ns(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, ...] | None: ...


class Lane(NamedTuple):
    """A share of the requests and their priority; lower comes first."""

    priority: int
    share: float


class SharedPrefix(NamedTuple):
    """The first tokens of each prompt are those of one of `groups` system prompts."""

    tokens: int
    groups: int


ONE_LANE = (Lane(0, 1.0),)

DAY = tuple(round(0.6 + 0.4 * math.cos(2 * math.pi * (hour - 15) / 24), 3) for hour in range(24))
"""Requests of each hour of a day over those of the busiest one: least at 3, most at 15 o'clock,
a fifth of it at night. Made up, of the shape that traffic of people has; not measured."""


def drawn(
    rate: float,
    duration_s: float,
    prompts: Lengths,
    outputs: Lengths,
    *,
    burstiness: float = 1.0,
    shared: SharedPrefix | None = None,
    seed: int = 0,
) -> Iterator[Arrival]:
    """`rate` requests a second, with gaps of a gamma distribution.

    burstiness: its shape: 1 is a Poisson process, below 1 comes in bursts, infinite is even.
    """
    above_zero("rate", rate, "requests a second")
    above_zero("duration", duration_s, "seconds")
    not_above(
        "rate times duration, in requests,", rate * duration_s, MOST_DRAWN,
        "take a shorter duration; what settles in it holds for longer",
    )  # fmt: skip
    if not burstiness >= _LEAST_BURSTINESS:
        raise ConfigError(
            f"burstiness is {shown(burstiness)}; it must be at least {_LEAST_BURSTINESS}: 1 is "
            "Poisson"
        )
    gaps, lengths, groups = (
        random.Random(f"{seed}:{name}") for name in ("arrivals", "lengths", "prefixes")
    )
    at_s = 0.0
    while True:
        pairs = zip(prompts.draw(_CHUNK, lengths), outputs.draw(_CHUNK, lengths), strict=True)
        for prompt, output in pairs:
            even = math.isinf(burstiness)
            at_s += 1 / rate if even else gaps.gammavariate(burstiness, 1 / (burstiness * rate))
            if at_s > duration_s:
                return
            if shared is None:
                yield Arrival(at_s, prompt, output)
            else:
                group = groups.randrange(shared.groups)
                length = prompt + shared.tokens
                yield Arrival(at_s, length, output, 0, (group,), shared.tokens)


def replayed(
    rows: Sequence[TraceRow], *, speed: float = 1.0, block_tokens: int | None = None
) -> Iterator[Arrival]:
    """The rows of a trace, `speed` times as fast. block_tokens: of the rows' blocks."""
    above_zero("speed", speed, "2 replays two seconds in one")
    for row in rows:
        yield _arrival(row, row.at_ns / _NS_PER_S / speed, block_tokens)


def scaled(arrivals: Iterable[Arrival], factor: float, *, seed: int = 0) -> Iterator[Arrival]:
    """So many times the requests: each is left out or comes several times, by chance.

    A copy comes up to half a minute from its original, and none before the start. What prompts
    share stays shared.
    """
    above_zero("scale", factor, "2 is twice the requests")
    source = random.Random(f"{seed}:scale")
    ahead: list[Arrival] = []
    for one in arrivals:
        ahead += _copies(one, factor, source)
        if len(ahead) > _CHUNK:
            # Whoever comes later than this has no copy that comes before it.
            safe_s = one.at_s - _NEAR_S
            ahead.sort()
            ready = sum(1 for early in ahead if early.at_s < safe_s)
            yield from ahead[:ready]
            del ahead[:ready]
    yield from sorted(ahead)


def daily(
    rows: Sequence[TraceRow],
    curve: Sequence[float] = DAY,
    *,
    block_tokens: int | None = None,
    seed: int = 0,
) -> Iterator[Arrival]:
    """An hour of a trace again and again, an hour for each number of `curve`.

    A number says how many times the trace's requests come in that hour; they are chosen, and where
    it is above 1 repeated, by chance. Blocks of other hours are other ones. Raises ConfigError for
    a trace that is longer than an hour or a number below 0.
    """
    if not rows or rows[-1].at_ns > 1.01 * _HOUR_S * _NS_PER_S:
        raise ConfigError("a day is made of a trace of an hour: cut it with --duration 3600")
    if not curve or not all(math.isfinite(one) and one >= 0 for one in curve):
        raise ConfigError(f"day curve {shown(list(curve))}: must be numbers of 0 or more")
    source = random.Random(f"{seed}:day")
    names: dict[tuple[int, int], int] = {}
    for hour, factor in enumerate(curve):
        start_s = hour * _HOUR_S
        found: list[Arrival] = []
        for row in rows:
            one = _arrival(row, start_s + min(row.at_ns / _NS_PER_S, _HOUR_S), block_tokens)
            blocks = tuple(names.setdefault((hour, id), len(names)) for id in one.shared)
            found += _copies(one._replace(shared=blocks), factor, source)
        last_s = start_s + _HOUR_S
        inside = [one._replace(at_s=min(max(one.at_s, start_s), last_s)) for one in found]
        yield from sorted(inside)


def in_lanes(
    arrivals: Iterable[Arrival], lanes: Sequence[Lane], *, seed: int = 0
) -> Iterator[Arrival]:
    """Each with the priority of a lane, drawn by the lanes' shares, which make 1 together."""
    for lane in lanes:
        share("lane", lane.share, "shares of all lanes make 1")
    if abs(sum(lane.share for lane in lanes) - 1) > 1e-6:
        total = sum(lane.share for lane in lanes)
        raise ConfigError(f"shares of lanes make {total:g}; they must make 1 together")
    source = random.Random(f"{seed}:lanes")
    priorities = [lane.priority for lane in lanes]
    weights = [lane.share for lane in lanes]
    for one in arrivals:
        yield one._replace(priority=source.choices(priorities, weights)[0])


def _arrival(row: TraceRow, at_s: float, block_tokens: int | None) -> Arrival:
    blocks = row.blocks or () if block_tokens else ()
    return Arrival(at_s, row.prompt_tokens, row.output_tokens, 0, blocks, block_tokens or 0)


def _copies(one: Arrival, factor: float, source: random.Random) -> list[Arrival]:
    count = int(factor) + (source.random() < factor % 1)
    if not count:
        return []
    spread = [source.uniform(-_NEAR_S, _NEAR_S) for _ in range(count - 1)]
    return [one, *(one._replace(at_s=max(0.0, one.at_s + by)) for by in spread)]
