"""What `headrace plan explain` prints: the figures of a plan, or the tree of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    from headrace.plan.explanation import Derivation, Dispute, Reason
    from headrace.plan.saved_plan import SavedFigure, SavedPlan
    from headrace.plan.speed.measured_speculation import Comparison
    from headrace.telemetry.draft_counts import DraftCounts

_LISTED = 60
_WIDEST_ID = 64
"""Characters of an id that others make room for: it is what people copy."""
_NARROWEST = 10
_RULES = 13
"""Of a table of four columns, its lines and the blanks beside them."""


def figures_json(plan: SavedPlan) -> str:
    """Ids with names and values."""
    rows = [
        {"id": one.id, "name": one.name, "value": one.value, "unit": one.unit, "low": one.low,
         "high": one.high, "formula_id": one.formula_id}
        for one in plan.quantities
    ]  # fmt: skip
    return json.dumps({"plan": plan.title, "figures": rows}, indent=2)


def print_figures(plan: SavedPlan) -> None:
    """Every figure that can be asked for; of very many the first, and how the others are named."""
    from rich.table import Table
    from rich.text import Text

    from headrace.cli.bench.console import wide_console
    from headrace.plan.formatting import band, shown

    console = wide_console()
    console.print(Text(_title(plan)))
    longest = max((len(one.id) for one in plan.quantities[:_LISTED]), default=0)
    wide = min(longest, _WIDEST_ID)
    room = max(3 * _NARROWEST, console.width - wide - _RULES)
    table = Table()
    table.add_column("id", overflow="fold", min_width=wide)
    table.add_column("figure", max_width=room - 2 * (room // 3))
    table.add_column("value", justify="right", max_width=room // 3)
    table.add_column("band", justify="right", max_width=room // 3)
    for one in plan.quantities[:_LISTED]:
        table.add_row(
            *(Text(visible(word)) for word in (
                one.id, one.name, shown(one.value, one.unit), band(one.low, one.high, one.unit)
            ))
        )  # fmt: skip
    console.print(table)
    left = len(plan.quantities) - _LISTED
    if left > 0:
        console.print(f"and {left:,} more like these; --json lists all", highlight=False)


def print_derivation(found: Derivation, plan: SavedPlan) -> None:
    """The tree of one figure, and the disputed facts that it stands on."""
    from rich.text import Text
    from rich.tree import Tree

    from headrace.cli.bench.console import wide_console

    console = wide_console()
    console.print(Text(_title(plan), style="dim"))
    tree = Tree(_figure(found.figure))
    _grow(tree, found)
    console.print(tree)
    for dispute in found.disputes:
        _dispute(console, dispute)


def print_comparison(
    plan: SavedPlan, source: str, counts: DraftCounts, rows: Sequence[Comparison]
) -> None:
    """Predictions of drafts beside what was counted."""
    from rich.table import Table
    from rich.text import Text

    from headrace.cli.bench.console import wide_console
    from headrace.plan.formatting import band, shown

    console = wide_console()
    console.print(Text(_title(plan), style="dim"))
    table = Table("figure")
    for heading in ("predicted", "band", "measured", "error"):
        table.add_column(heading, justify="right")
    table.add_column("id")
    for figure in rows:
        known = figure.measured is not None
        table.add_row(
            visible(figure.name),
            shown(figure.predicted, figure.unit),
            band(figure.low, figure.high, figure.unit),
            shown(figure.measured, figure.unit) if known else "-",
            "-" if figure.error is None else f"{figure.error:+.0%}",
            figure.id,
        )
    console.print(table)
    said = (
        f"measured: {source}: {counts.rows:,.0f} rows with {counts.drafts_per_row:.2f} drafts "
        f"each, {counts.accepted / max(1.0, counts.drafted):.0%} accepted"
    )
    said += (
        f"; {counts.compared_steps:,.0f} steps compared with those without drafts"
        if counts.compared_steps
        else "; the server does not compare its steps with those without drafts"
    )
    console.print(Text(visible(said)))


def _title(plan: SavedPlan) -> str:
    about = plan.about
    if about is None:
        return visible(plan.title)
    return visible(f"{plan.title}, {about.made_at[:10]}: {about.command}")


def _figure(one: SavedFigure) -> Text:
    from rich.text import Text

    from headrace.plan.formatting import band, shown

    said = Text(visible(f"{one.name}: "))
    said.append(visible(shown(one.value, one.unit)), style="bold")
    said.append(" exact" if one.is_exact else visible(f" ({band(one.low, one.high, one.unit)})"))
    said.append(visible(f"  {one.id}"), style="cyan")
    said.append(visible(f"\n{one.formula_id}: {one.formula}"), style="dim")
    return said


def _grow(tree: Tree, of: Derivation) -> None:
    for reason in of.reasons:
        if reason.derivation is None:
            tree.add(_leaf(reason))
            continue
        branch = tree.add(_branch(reason, reason.derivation))
        _grow(branch, reason.derivation)


def _branch(reason: Reason, of: Derivation) -> Text:
    """The figure; above it the input that is made of it, where that is not the figure itself."""
    from rich.text import Text

    from headrace.plan.formatting import shown

    one = reason.input
    if (one.value, one.unit) == (of.figure.value, of.figure.unit):
        return _figure(of.figure)
    said = Text(visible(f"{one.name}: "))
    said.append(visible(shown(one.value, one.unit, whole=True)), style="bold")
    said.append(", which comes from\n")
    said.append(_figure(of.figure))
    return said


def _leaf(reason: Reason) -> Text:
    from rich.text import Text

    from headrace.plan.formatting import shown

    one, fact = reason.input, reason.fact
    said = Text(visible(f"{one.name}: "))
    said.append(visible(shown(one.value, one.unit, whole=True)), style="bold")
    if reason.repeated:
        said.append(visible(f"  {one.figure}, as above"), style="cyan")
        return said
    if reason.lost:
        said.append(visible(f"  {one.figure}, which the plan lacks"), style="red")
        return said
    words = [one.basis, one.as_of]
    if fact is None:
        words.insert(0, one.source if one.source != one.basis else "")
    elif fact.confidence:
        words.insert(1, f"confidence {fact.confidence}")
    if one.note:
        words.append(one.note)
    said.append(visible(f"  {', '.join(word for word in words if word)}"), style="dim")
    if fact is not None:
        of = f"{fact.kind} {fact.row}{'.' if fact.field else ''}{fact.field}"
        said.append(visible(f"\ncatalog {of}" + (f": {fact.source}" if fact.source else "")))
        if fact.now:
            said.append(visible(f"\nthe catalog says {fact.now} now"), style="yellow")
    if reason.disputes:
        ids = ", ".join(dispute.id for dispute in reason.disputes)
        said.append(visible(f"\ndisputed, see below: {ids}"), style="yellow")
    return said


def _dispute(console: Console, one: Dispute) -> None:
    from rich.padding import Padding
    from rich.text import Text

    say = console.print
    say()
    say(Text(visible(f"disputed {one.id}: {one.subject}"), style="yellow"))
    lines = [f"{who}: {says}" for who, says in one.statements]
    lines += [f"used: {one.used}"] if one.used else []
    lines += [f"why: {one.why}"] if one.why else []
    for line in lines:
        say(Padding(Text(visible(line)), (0, 0, 0, 2)))
