"""Each figure with its formula and inputs, to be opened, and the disputed facts behind them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.page.markup import Markup, tag
from headrace.page.page import sheet_markup
from headrace.page.sheet import Cell, Sheet
from headrace.plan.explanation import Dispute, Explainer, Reason
from headrace.plan.formatting import band, shown
from headrace.plan.saved_plan import SavedFigure

STYLE = """
details.figure{background:var(--card);border:1px solid var(--grid);border-radius:8px;
margin:6px 0;padding:6px 14px}
details.figure summary{cursor:pointer;overflow-wrap:anywhere}
details.figure summary code{color:var(--ink2);font-size:12px}
details.figure .sheet{border:0;padding:0;margin:6px 0}
details.figure:target{border-color:var(--c1)}
a{color:var(--c1)}
pre{font:12px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}
.command{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}
"""


def figure_details(
    figures: Sequence[SavedFigure], explainer: Explainer
) -> tuple[list[Markup], list[Dispute]]:
    """Closed details of every figure, in order, and each dispute that one of them touches."""
    disputes: dict[str, Dispute] = {}
    made = []
    for one in figures:
        reasons = explainer.reasons(one)
        disputes.update({told.id: told for reason in reasons for told in reason.disputes})
        made.append(_details(one, reasons))
    return made, list(disputes.values())


def disputes_sheet(disputes: Sequence[Dispute]) -> Sheet:
    """What others say, what is used, and why."""
    rows = tuple(
        (
            Cell(one.subject, one.id),
            Cell("; ".join(f"{who}: {says}" for who, says in one.statements)),
            Cell(one.used),
            Cell(one.why),
        )
        for one in sorted(disputes, key=lambda one: one.id)
    )
    return Sheet(
        "Where sources disagree", ("fact and id", "sources say", "used", "why"), rows, names=4
    )


def _details(one: SavedFigure, reasons: Sequence[Reason]) -> Markup:
    value = tag("b", shown(one.value, one.unit))
    spread = "" if one.is_exact else f" ({band(one.low, one.high, one.unit)})"
    summary = tag("summary", f"{one.name}: ", value, f"{spread} ", tag("code", one.id))
    formula = tag("p", f"{one.formula_id}: {one.formula}", class_="sub")
    sheet = Sheet(
        "",
        ("input", "value", "from", "how sure"),
        tuple(_row(reason) for reason in reasons),
        names=4,
    )
    inputs = [sheet_markup(sheet)] if reasons else []
    return tag("details", summary, formula, *inputs, class_="figure", id=f"figure-{one.id}")


def _row(reason: Reason) -> tuple[Cell, ...]:
    one, fact = reason.input, reason.fact
    value = shown(one.value, one.unit, whole=True)
    if one.figure is not None:
        source = Cell(f"figure {one.figure}", "not in this plan" if reason.lost else "")
        return Cell(one.name), Cell(value), source, Cell("")
    if fact is None:
        source = Cell(one.source if one.source != one.basis else "", one.note)
    else:
        field = f".{fact.field}" if fact.field else ""
        source = Cell(f"catalog {fact.kind} {fact.row}{field}", fact.source)
    sure = [one.basis, f"confidence {fact.confidence}" if fact and fact.confidence else ""]
    notes = [one.as_of, *(f"disputed: {told.id}" for told in reason.disputes)]
    if fact is not None and fact.now:
        notes.append(f"the catalog says {fact.now} now")
    return (
        Cell(one.name, one.note if fact is not None else ""),
        Cell(value),
        source,
        Cell(", ".join(filter(None, sure)), ", ".join(filter(None, notes))),
    )
