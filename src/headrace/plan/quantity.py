"""A figure of a plan with all it came from: what `plan explain` prints.

Nothing here computes; whoever does says the formula by its id and hands over every input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.catalog.fact import Confidence, Fact
from headrace.catalog.rows import Row
from headrace.errors import ConfigError
from headrace.plan.formulas import FORMULAS

Basis = Literal["exact", "measured", "data sheet", "assumed", "given"]

# Confidence of a fact -> what an input is that comes from it.
_BASES: dict[Confidence, Basis] = {
    Confidence.EXACT: "exact",
    Confidence.HIGH: "data sheet",
    Confidence.MEDIUM: "data sheet",
    Confidence.LOW: "assumed",
}


@dataclass(frozen=True)
class Input:
    """One value a figure was computed from. as_of: ISO date, "" where nothing is dated."""

    name: str
    value: float | str
    unit: str
    source: str
    basis: Basis
    as_of: str = ""
    disputed_by: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Quantity:
    """A figure."""

    id: str
    """Its identifier, unique in a plan."""
    name: str
    value: float
    unit: str
    formula: str
    inputs: tuple[Input, ...] = field(default=())
    low: float | None = None
    high: float | None = None
    """With `low`: the band the true figure is expected in; equal to `value` where it is exact."""

    def __post_init__(self) -> None:
        low, high = self.band
        if self.formula not in FORMULAS:
            raise ValueError(f"{self.id}: formula {self.formula!r} is not in plan/formulas.py")
        if not low <= self.value <= high:
            raise ValueError(f"{self.id}: {self.value} is outside its band {low} to {high}")

    @property
    def band(self) -> tuple[float, float]:
        """Lower and upper end; both are the value where no error is stated."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return low, high

    @property
    def is_exact(self) -> bool:
        """Whether nothing about it is estimated."""
        return self.band == (self.value, self.value)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: plain values only."""
        low, high = self.band
        return {
            "id": self.id,
            "name": self.name,
            "value": _plain(self.value),
            "unit": self.unit,
            "low": _plain(low),
            "high": _plain(high),
            "formula_id": self.formula,
            "formula": FORMULAS[self.formula],
            "inputs": [
                {
                    "name": one.name,
                    "value": _plain(one.value),
                    "unit": one.unit,
                    "source": one.source,
                    "as_of": one.as_of,
                    "basis": one.basis,
                    "disputed_by": list(one.disputed_by),
                    "note": one.note,
                }
                for one in self.inputs
            ],
        }


def input_of_fact(row: Row, path: str, fact: Fact, value: float | str | None = None) -> Input:
    """An input that is a fact of a row of the catalog; `value` where it is another than stated.

    Raises ConfigError for a claim: those are shown and nothing is computed with them.
    """
    if fact.confidence is Confidence.CLAIM:
        raise ConfigError(
            f"{row.id}.{path} is a claim without conditions; it is not used in computations"
        )
    stated = fact.value if isinstance(fact.value, int | float) else str(fact.value)
    return Input(
        name=f"{row.id}.{path}",
        value=stated if value is None else value,
        unit=fact.unit,
        source=fact.source,
        basis=_BASES[fact.confidence],
        as_of=fact.as_of.isoformat(),
        disputed_by=fact.disputed_by,
        note=fact.note,
    )


def total(
    id: str, name: str, parts: Iterable[Quantity], formula: str, inputs: tuple[Input, ...] = ()
) -> Quantity:
    """The sum of figures of one unit; its band is the sum of theirs, as if all erred one way."""
    parts = tuple(parts)
    units = {one.unit for one in parts}
    if len(units) != 1:
        raise ValueError(f"{id}: figures of {', '.join(sorted(units)) or 'no'} units have no sum")
    named = tuple(
        Input(
            one.name, one.value, one.unit, f"figure {one.id}", "exact" if one.is_exact else "given"
        )
        for one in parts
    )
    return Quantity(
        id=id,
        name=name,
        value=sum(one.value for one in parts),
        unit=units.pop(),
        formula=formula,
        inputs=(*named, *inputs),
        low=sum(one.band[0] for one in parts),
        high=sum(one.band[1] for one in parts),
    )


def _plain(value: float | str) -> float | str:
    """Whole numbers as int: JSON shows bytes without a fraction."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value
