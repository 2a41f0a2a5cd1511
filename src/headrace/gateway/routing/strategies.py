"""In which order the targets of a model are tried: a score each, the lowest first."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.settings.model import Strategy
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.dollars import NUSD_PER_USD

_MILLION = 1_000_000
LIKELY_OUTPUT_TOKENS = 500
"""What a prompt is followed by where nobody says it."""


class Scored(NamedTuple):
    """reason: what the score says, for people."""

    target: Target
    score: float
    reason: str


# The last is the time, in seconds of the clock that health is kept by.
Order = Callable[[Sequence[Target], RoutingQuery, random.Random, float], list[Scored]]


def weighted(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """By chance, in proportion to weights; a target with weight 0 comes after all others.

    Sorted by -ln(u) / weight, the first is each target with its share of probability, and so is
    each next one among those left (Efraimidis and Spirakis, 2006).
    """
    total = sum(one.weight for one in targets) or 1.0
    found = []
    for one in targets:
        drawn = -math.log(1.0 - source.random()) / one.weight if one.weight else math.inf
        found.append(Scored(one, drawn, _drawn(one.weight, total)))
    return sorted(found, key=_score)


@lru_cache(maxsize=1024)
def _drawn(weight: float, total: float) -> str:
    """Said with every request, and mostly heard by nobody."""
    return f"weight {weight:g} of {total:g}, drawn by chance"


def of_session(targets: Sequence[Target], key: str | int) -> list[Scored]:
    """As `weighted`, with a session's own draw in place of chance: the same in every process,
    before any of them has heard of it, and after a restart (rendezvous hashing)."""
    total = sum(one.weight for one in targets) or 1.0
    found = []
    for one in targets:
        told = blake2b(f"{key}\0{one.name}".encode("utf-8", "surrogatepass"), digest_size=8)
        share = int.from_bytes(told.digest()) / 2**64
        drawn = -math.log1p(-share) / one.weight if one.weight and share < 1 else math.inf
        found.append(Scored(one, drawn, f"weight {one.weight:g} of {total:g}, drawn by session"))
    return sorted(found, key=_score)


def ordered(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """As they stand in the file."""
    return [Scored(one, float(at), f"number {at + 1} of the list") for at, one in
            enumerate(targets)]  # fmt: skip


def least_busy(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Fewest requests under way, for its weight; ties by chance."""
    found = [
        Scored(
            one,
            (one.health.in_flight + 1) / (one.weight or 1e-9),
            f"{one.health.in_flight} requests at it",
        )
        for one in _shuffled(targets, source)
    ]
    return sorted(found, key=_score)


def latency(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Of two drawn by chance the one with less latency times load; then the others likewise.

    Taking always the very best sends everybody there at once (Mitzenmacher, 2001: two choices).
    """
    left = list(targets)
    found = []
    while left:
        two = source.sample(left, min(2, len(left)))
        best = min(two, key=lambda one: one.health.load_score(now_s))
        left.remove(best)
        seen = best.health.first_token_s
        said = "not tried yet" if seen is None else f"first token after {seen:.3f} s"
        found.append(
            Scored(best, best.health.load_score(now_s), f"{said}, {best.health.in_flight} at it")
        )
    return found


def throughput(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Most tokens a second of a request; those nobody tried first."""
    found = []
    for one in _shuffled(targets, source):
        rate = one.health.tokens_per_s
        said = "not tried yet" if rate is None else f"{rate:.1f} tokens/s"
        found.append(Scored(one, -math.inf if rate is None else -rate, said))
    return sorted(found, key=_score)


def price(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """The cheapest for this request; those without a known price last."""
    found = []
    for one in _shuffled(targets, source):
        cost = expected_nusd(one, ask)
        said = "no price known" if cost is None else f"about ${cost / NUSD_PER_USD:.6f}"
        found.append(Scored(one, math.inf if cost is None else float(cost), said))
    return sorted(found, key=_score)


def expected_nusd(target: Target, ask: RoutingQuery) -> int | None:
    """What the request may cost there, in nano-dollars; None if nobody knows its price."""
    if (price := target.price) is None:
        return None
    rates = price.of_prompt(ask.input_tokens)
    output = ask.most_output_tokens or LIKELY_OUTPUT_TOKENS
    return (ask.input_tokens * rates.input + output * rates.output) // _MILLION


ORDERS: dict[Strategy, Order] = {
    "weighted": weighted,
    "ordered": ordered,
    "least_busy": least_busy,
    "latency": latency,
    "price": price,
    "throughput": throughput,
}


def _shuffled(targets: Sequence[Target], source: random.Random) -> list[Target]:
    found = list(targets)
    source.shuffle(found)
    return found


def _score(one: Scored) -> float:
    return one.score
