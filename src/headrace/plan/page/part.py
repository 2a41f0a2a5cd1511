"""What each kind of plan gives to a page."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.page.plots.frame import Plot
from headrace.page.sheet import Cell, Sheet
from headrace.plan.formatting import band, shown
from headrace.plan.quantity import Quantity


@dataclass(frozen=True)
class Block:
    """Text that keeps its lines: a command, a file. note: below it."""

    title: str
    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """One plan of a page."""

    title: str
    subject: str
    verdicts: tuple[tuple[str, bool | None], ...]
    """Sentences, with good news True, bad news False, neither None."""
    tiles: tuple[tuple[str, str], ...]
    """Name and value."""
    plots: tuple[Plot, ...]
    sheets: tuple[Sheet | Block, ...]
    assumptions: tuple[str, ...]
    """What a reader has to know of the figures."""
    quantities: tuple[Quantity, ...]


def figure_row(one: Quantity, *, bytes_too: bool = False) -> tuple[Cell, ...]:
    """Name with id below, value with unit, band; GiB beside it where that is wanted."""
    low, high = one.band
    cells = [Cell(one.name, one.id), Cell(shown(one.value, one.unit))]
    if bytes_too:
        cells.append(Cell(f"{one.value / 2**30:,.2f} GiB"))
    return (*cells, Cell(band(low, high, one.unit)))
