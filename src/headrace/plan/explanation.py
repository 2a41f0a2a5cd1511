"""Where a figure comes from: its formula, its inputs, theirs, down to rows of the catalog.

Sources, rows and disputed facts are read from the catalog as it is now; a fact that has changed
since the plan was made says so. Each figure is expanded where it is met first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.catalog.fact import Fact, value_text
from headrace.catalog.names import near
from headrace.catalog.rows import Row
from headrace.errors import ConfigError, shown
from headrace.plan.saved_plan import SavedFigure, SavedInput, SavedPlan

_DEEPEST = 64
_COMPUTED_WITH = (
    "hardware", "constant", "quantization", "price", "model", "technique", "measurement",
)  # fmt: skip
"""Kinds of rows that figures come from."""


@dataclass(frozen=True)
class Dispute:
    """A fact that sources disagree about."""

    id: str
    subject: str
    statements: tuple[tuple[str, str], ...]
    """Pairs of a source and what it states."""
    used: str
    why: str


@dataclass(frozen=True)
class CatalogFact:
    """A fact that an input is."""

    kind: str
    row: str
    """Its kind and id, field: of the row."""
    field: str
    source: str
    """Title and address."""
    confidence: str
    """Confidence that the catalog states."""
    now: str = ""
    """What the catalog says today, "" where that is what the plan was made with."""


@dataclass(frozen=True)
class Reason:
    """One input of a figure.

    fact: None where it is none of the catalog. derivation: of the figure that it is; None where it
    is none, where that stands above already (`repeated`), or lacks in the plan (`lost`).
    """

    input: SavedInput
    fact: CatalogFact | None
    disputes: tuple[Dispute, ...]
    derivation: Derivation | None
    repeated: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Derivation:
    """A figure with the reasons for it."""

    figure: SavedFigure
    reasons: tuple[Reason, ...]

    @property
    def disputes(self) -> tuple[Dispute, ...]:
        """Every one that is met on the way down, once."""
        return tuple({one.id: one for one in _disputes(self)}.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        one = self.figure
        return {
            "id": one.id, "name": one.name, "value": one.value, "unit": one.unit,
            "low": one.low, "high": one.high,
            "formula_id": one.formula_id, "formula": one.formula,
            "inputs": [_reason_dict(reason) for reason in self.reasons],
        }  # fmt: skip


def explain(plan: SavedPlan, id: str, catalog: Catalog) -> Derivation:
    """The derivation of the figure `id` of a plan.

    Raises ConfigError for one that it has not, with the nearest, and for figures that go in a
    circle or deeper than any plan does.
    """
    return Explainer(plan, catalog).explain(id)


def lost_figures(figures: Iterable[SavedFigure]) -> list[str]:
    """Ids that inputs name and no figure has; none of a whole plan."""
    known = {one.id: one for one in figures}
    named = {input.figure for one in known.values() for input in one.inputs if input.figure}
    return sorted(named - set(known))


class Explainer:
    """Derivations of one plan's figures."""

    def __init__(self, plan: SavedPlan, catalog: Catalog) -> None:
        self._plan = plan
        self._figures = plan.figures
        self._catalog = catalog
        self._rows: dict[str, dict[str, Row]] = {
            kind: {row.id: row for row in catalog.table(kind)} for kind in _COMPUTED_WITH
        }

    def explain(self, id: str) -> Derivation:
        """As the function of that name."""
        if id in self._figures:
            return self._derivation(self._figures[id], set(), 0)
        found = near(id, self._figures, 5)
        hint = "omit the id to list all"
        if found:
            hint = f"did you mean {' or '.join(map(repr, found))}?"
        raise ConfigError(f"figure {shown(id)} is not in this {self._plan.title}; {hint}")

    def reasons(self, figure: SavedFigure) -> tuple[Reason, ...]:
        """Of a figure alone: inputs that are figures are not expanded."""
        return self._derivation(figure, set(self._figures), 0).reasons

    def _derivation(self, figure: SavedFigure, done: set[str], depth: int) -> Derivation:
        if depth > _DEEPEST:
            raise ConfigError(
                f"figures of the plan are nested deeper than {_DEEPEST} at "
                f"{shown(figure.id)}; make the plan again"
            )
        done.add(figure.id)
        return Derivation(figure, tuple(self._reason(one, done, depth) for one in figure.inputs))

    def _reason(self, input: SavedInput, done: set[str], depth: int) -> Reason:
        id = input.figure
        if id is not None:
            found = self._figures.get(id)
            if found is None:
                return Reason(input, None, (), None, lost=True)
            if id in done:
                return Reason(input, None, (), None, repeated=True)
            return Reason(input, None, (), self._derivation(found, done, depth + 1))
        fact, disputed_by = self._fact(input)
        ids = dict.fromkeys((*input.disputed_by, *disputed_by))
        return Reason(input, fact, tuple(dispute(self._catalog, one) for one in ids), None)

    def _fact(self, input: SavedInput) -> tuple[CatalogFact | None, tuple[str, ...]]:
        """The fact of the catalog that an input is, and the disputes that it is part of."""
        found = self._row_and_field(input)
        if found is None:
            return None, ()
        kind, row, field, fact = found
        now = ""
        if fact is not None and input.as_of and fact.as_of.isoformat() != input.as_of:
            now = f"{value_text(fact.value)} {fact.unit}".strip() + f" ({fact.as_of})"
        return (
            CatalogFact(
                kind=kind,
                row=row,
                field=field,
                source="" if fact is None else source_text(self._catalog, fact.source),
                confidence="" if fact is None else str(fact.confidence),
                now=now,
            ),
            () if fact is None else fact.disputed_by,
        )

    def _row_and_field(self, input: SavedInput) -> tuple[str, str, str, Fact | None] | None:
        """Inputs name their row in the name ("h100.memory_bytes") or as the source."""
        model = input.source.removeprefix("catalog model ")
        if model != input.source:
            return "model", model, "", None
        constant = self._rows["constant"].get(input.source)
        if constant is not None:
            return "constant", constant.id, "figure", constant.facts.get("figure")
        for at in [at for at, mark in enumerate(input.name) if mark == "."][::-1]:
            id, field = input.name[:at], input.name[at + 1 :]
            for kind, table in self._rows.items():
                if id in table and field in table[id].facts:
                    return kind, id, field, table[id].facts[field]
        return None


def source_text(catalog: Catalog, id: str) -> str:
    """Title, publisher and address of a source; the id itself where it is none."""
    one = catalog.sources.get(id)
    if one is None:
        return id
    by = f", {one.publisher}" if one.publisher and one.publisher not in one.title else ""
    return f"{one.title}{by}" + (f", {one.url}" if one.url else "")


def dispute(catalog: Catalog, id: str) -> Dispute:
    """The row of the register; with the id alone where the register has none."""
    one = catalog.contradictions.get(id)
    if one is None:
        return Dispute(id, "no longer in the register", (), "", "")
    said = tuple((catalog.sources[two.source].title, two.says) for two in one.statements)
    return Dispute(one.id, one.subject, said, one.used, one.why)


def _disputes(of: Derivation) -> Iterator[Dispute]:
    for reason in of.reasons:
        yield from reason.disputes
        if reason.derivation is not None:
            yield from _disputes(reason.derivation)


def _reason_dict(reason: Reason) -> dict[str, Any]:
    input, fact = reason.input, reason.fact
    return {
        "name": input.name, "value": input.value, "unit": input.unit, "source": input.source,
        "as_of": input.as_of, "basis": input.basis, "note": input.note,
        "catalog": None if fact is None else {
            "kind": fact.kind, "row": fact.row, "field": fact.field, "source": fact.source,
            "confidence": fact.confidence, "now": fact.now,
        },
        "disputed_by": [
            {
                "id": one.id, "subject": one.subject, "used": one.used, "why": one.why,
                "statements": [{"source": who, "says": says} for who, says in one.statements],
            }
            for one in reason.disputes
        ],
        "figure": None if reason.derivation is None else reason.derivation.as_dict(),
        "repeated": reason.repeated, "lost": reason.lost,
    }  # fmt: skip
