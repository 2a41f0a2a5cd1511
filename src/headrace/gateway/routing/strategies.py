"""The order in which a model's targets are tried: each has a score, the lowest comes first."""

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
"""Expected output where the request does not limit it."""


class Scored(NamedTuple):
    """A target with its score."""

    target: Target
    score: float
    reason: str
    """What the score means, for people to read."""


# The last argument is the time, in seconds of the clock that health uses.
Order = Callable[[Sequence[Target], RoutingQuery, random.Random, float], list[Scored]]


def weighted(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Random, in proportion to weights; targets with weight 0 come after all others.

    Sorted by -ln(u) / weight, each target is first with its share of probability, and so on among
    those left (Efraimidis and Spirakis, 2006).
    """
    total = sum(target.weight for target in targets) or 1.0
    scored = []
    for target in targets:
        drawn = -math.log(1.0 - source.random()) / target.weight if target.weight else math.inf
        scored.append(Scored(target, drawn, _drawn(target.weight, total)))
    return sorted(scored, key=_score)


@lru_cache(maxsize=1024)
def _drawn(weight: float, total: float) -> str:
    """The reason; cached, because every request has it and few readers see it."""
    return f"weight {weight:g} of {total:g}, drawn by chance"


def of_session(targets: Sequence[Target], key: str | int) -> list[Scored]:
    """As `weighted`, drawn from the session's key instead of at random: the same in every process,
    before any has served the session, and after a restart (rendezvous hashing)."""
    total = sum(target.weight for target in targets) or 1.0
    scored = []
    for target in targets:
        digest = blake2b(f"{key}\0{target.name}".encode("utf-8", "surrogatepass"), digest_size=8)
        share = int.from_bytes(digest.digest()) / 2**64
        drawn = -math.log1p(-share) / target.weight if target.weight and share < 1 else math.inf
        scored.append(
            Scored(target, drawn, f"weight {target.weight:g} of {total:g}, drawn by session")
        )
    return sorted(scored, key=_score)


def ordered(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """In the order of the configuration."""
    return [Scored(target, float(at), f"number {at + 1} of the list") for at, target in
            enumerate(targets)]  # fmt: skip


def least_busy(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Fewest requests under way relative to weight; ties at random."""
    scored = [
        Scored(
            target,
            (target.health.in_flight + 1) / (target.weight or 1e-9),
            f"serving {target.health.in_flight} requests",
        )
        for target in _shuffled(targets, source)
    ]
    return sorted(scored, key=_score)


def latency(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """The better of two drawn at random by latency times load; then the others in the same way.

    Always taking the best would send all requests there at once (Mitzenmacher, 2001: two choices).
    """
    left = list(targets)
    scored = []
    while left:
        two = source.sample(left, min(2, len(left)))
        best = min(two, key=lambda one: one.health.load_score(now_s))
        left.remove(best)
        seen = best.health.first_token_s
        reason = "not tried yet" if seen is None else f"first token after {seen:.3f} s"
        scored.append(
            Scored(best, best.health.load_score(now_s), f"{reason}, {best.health.in_flight} at it")
        )
    return scored


def throughput(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """Most tokens per second of a request; targets not yet tried come first."""
    scored = []
    for target in _shuffled(targets, source):
        rate = target.health.tokens_per_s
        reason = "not tried yet" if rate is None else f"{rate:.1f} tokens/s"
        scored.append(Scored(target, -math.inf if rate is None else -rate, reason))
    return sorted(scored, key=_score)


def price(
    targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
) -> list[Scored]:
    """The cheapest for this request; targets with an unknown price come last."""
    scored = []
    for target in _shuffled(targets, source):
        cost = expected_nusd(target, ask)
        reason = "price unknown" if cost is None else f"about ${cost / NUSD_PER_USD:.6f}"
        scored.append(Scored(target, math.inf if cost is None else float(cost), reason))
    return sorted(scored, key=_score)


def expected_nusd(target: Target, ask: RoutingQuery) -> int | None:
    """The expected cost of the request there, in nano-dollars; None if the price is unknown."""
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
    shuffled = list(targets)
    source.shuffle(shuffled)
    return shuffled


def _score(one: Scored) -> float:
    return one.score
