"""The order of options, and three of them that differ most.

Each of cost, E2E and size counts from 0 to its weight (rule-score), by its logarithm between the
worst and the best of what is left; what an option does not state counts as half way. Trees and soft
rules add a little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headrace.catalog import Catalog
from headrace.plan.recommendation.option import Option

# Soft rules that put in doubt that the option can be had at all; that the least of cost or time is
# worth having; that size stands for quality.
_DOUBTFUL = frozenset({"rule-checkpoint-unseen", "rule-tight"})
_AGAINST_LEAST = frozenset({"rule-age", "rule-made-for"})
_AGAINST_BEST = frozenset({"rule-bits", "rule-made-for"})
# Of what nobody states: neither the best nor the worst.
_UNKNOWN = 0.5

Order = Literal["balance", "cost", "latency", "size"]
Measure = Callable[[Option], float | None]


@dataclass(frozen=True, kw_only=True)
class Score:
    """Parts from 0 to their weights, and what trees and soft rules add; `total` is their sum."""

    cost: float
    latency: float
    size: float
    trees: float
    marks: float

    @property
    def total(self) -> float:
        return self.cost + self.latency + self.size + self.trees + self.marks

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "total": self.total, "cost": self.cost, "latency": self.latency, "size": self.size,
            "trees": self.trees, "marks": self.marks,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An option with its place, from 1."""

    place: int
    option: Option
    score: Score


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """The options that are least a month, least E2E, largest by the proxy; None where no option
    states it.
    """

    cheapest: Option | None
    fastest: Option | None
    best: Option | None


def usd(option: Option) -> float | None:
    """USD a month."""
    return None if option.usd_per_month is None else option.usd_per_month.value


def e2e_s(option: Option) -> float | None:
    """Seconds to the last token."""
    return option.e2e_s


def size(option: Option) -> float | None:
    """Parameters by the proxy of quality."""
    return option.quality.parameters


def ranked(catalog: Catalog, options: Sequence[Option], order: Order) -> tuple[Ranked, ...]:
    """From the best; of options that differ in the count of devices alone, the better one."""
    limits = catalog.rules["rule-score"].limits
    tree, soft = limits["tree"].low or 0.0, limits["soft"].low or 0.0
    weights = {name: limits[name].low or 0.0 for name in ("cost", "latency", "size")}
    cost, latency = _scale(options, usd, falling=True), _scale(options, e2e_s, falling=True)
    larger = _scale(options, size, falling=False)
    scored = []
    for option in options:
        agrees = sum(1 if one.agrees else -1 for one in option.advice)
        score = Score(
            cost=weights["cost"] * cost(option),
            latency=weights["latency"] * latency(option),
            size=weights["size"] * larger(option),
            trees=tree * agrees,
            marks=-soft * len(option.marks),
        )
        scored.append((option, score))
    keys: dict[Order, Callable[[tuple[Option, Score]], tuple[float, ...]]] = {
        "balance": lambda one: (-one[1].total,),
        "cost": lambda one: (_or_last(usd(one[0])), -one[1].total),
        "latency": lambda one: (_or_last(e2e_s(one[0])), -one[1].total),
        "size": lambda one: (-(size(one[0]) or 0.0), -one[1].total),
    }
    scored.sort(key=keys[order])
    seen: set[tuple[str, ...]] = set()
    kept = []
    for option, score in scored:
        where = option.api if option.machines is None else option.machines.hardware
        alike = (option.model, where)
        if alike in seen:
            continue
        seen.add(alike)
        kept.append((option, score))
    return tuple(
        Ranked(place=place, option=option, score=score)
        for place, (option, score) in enumerate(kept, 1)
    )


def alternatives(options: Sequence[Option]) -> Alternatives:
    """The three ends, of options that no soft rule on the measure speaks against.

    Other marks stay as they are shown. Where two are alike in the first measure, the others decide.
    Where marks speak against all that state the measure, they are not looked at.
    """

    def least(
        measure: Measure, *then: Measure, against: frozenset[str] = _AGAINST_LEAST
    ) -> Option | None:
        stated = [one for one in options if measure(one) is not None]
        doubts = _DOUBTFUL | against
        known = [
            one for one in stated if not any(mark.rule in doubts for mark in one.marks)
        ] or stated
        return min(
            known, key=lambda one: tuple(_or_last(each(one)) for each in (measure, *then)),
            default=None,
        )  # fmt: skip

    def smallness(option: Option) -> float | None:
        return None if size(option) is None else -(size(option) or 0.0)

    def fewness_of_bits(option: Option) -> float | None:
        return -(option.quality.bits or 0.0)

    return Alternatives(
        cheapest=least(usd, smallness, e2e_s),
        fastest=least(e2e_s, usd),
        best=least(smallness, fewness_of_bits, usd, against=_AGAINST_BEST),
    )


def _or_last(value: float | None) -> float:
    return math.inf if value is None else value


def _scale(
    options: Sequence[Option], measure: Measure, *, falling: bool
) -> Callable[[Option], float]:
    # A month for nothing is as good as one for a dollar, which has a logarithm.
    values = [max(one, 1e-6) for option in options if (one := measure(option)) is not None]
    if falling and measure is usd:
        values = [max(one, 1.0) for one in values]
    low, high = (math.log(min(values)), math.log(max(values))) if values else (0.0, 0.0)

    def share(option: Option) -> float:
        value = measure(option)
        if value is None:
            return _UNKNOWN
        if high == low:
            return 1.0
        floor = 1.0 if measure is usd else 1e-6
        place = (math.log(max(value, floor)) - low) / (high - low)
        return 1 - place if falling else place

    return share
