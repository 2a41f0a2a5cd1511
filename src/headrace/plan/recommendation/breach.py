"""A rule that an option breaks, by how much, and what broke which rule how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog

_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class Breach:
    """One rule broken."""

    rule: str
    """Id of its row."""
    text: str
    """The breach in words, with value and limit."""
    excess: float | None = None
    """How much too much it is as a share of the limit, None where nothing is measured."""
    option: str = ""
    """What to change in the question so that it holds, "" where no option does."""


@dataclass(frozen=True, kw_only=True)
class RuledOut:
    """One option with all that rules it out, as far as it was looked at."""

    name: str
    breaches: tuple[Breach, ...]
    model: str = ""

    @property
    def excess(self) -> float:
        """Of all breaches together; endless where one of them is no matter of degree."""
        return sum(float("inf") if one.excess is None else one.excess for one in self.breaches)


@dataclass(frozen=True, kw_only=True)
class RuledOutBy:
    """The combinations that one rule excluded."""

    rule: str
    says: str
    remedy: str
    source: str
    count: int
    examples: tuple[str, ...]
    """Combinations that missed the rule by the least."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rule": self.rule, "says": self.says, "remedy": self.remedy, "source": self.source,
            "count": self.count, "examples": list(self.examples),
        }  # fmt: skip


def ruled_out_by(catalog: Catalog, found: Iterable[RuledOut]) -> tuple[RuledOutBy, ...]:
    """By rule, from the one that ruled out most."""
    counts: Counter[str] = Counter()
    of: dict[str, list[tuple[float, str]]] = {}
    for one in found:
        for breach in one.breaches:
            counts[breach.rule] += 1
            near = float("inf") if breach.excess is None else breach.excess
            of.setdefault(breach.rule, []).append((near, f"{one.name}: {breach.text}"))
    return tuple(_of_rule(catalog, rule, count, of) for rule, count in counts.most_common())


def _of_rule(
    catalog: Catalog, rule: str, count: int, of: Mapping[str, list[tuple[float, str]]]
) -> RuledOutBy:
    row = catalog.rules[rule]
    examples = dict.fromkeys(text for _, text in sorted(of[rule], key=lambda one: one[0]))
    return RuledOutBy(
        rule=rule, says=row.says, remedy=row.remedy, source=row.fact("says").source, count=count,
        examples=tuple(examples)[:_EXAMPLES],
    )  # fmt: skip
