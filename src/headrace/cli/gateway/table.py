"""Tables of figures that fit the terminal: what matters least is left out where it is narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from rich.table import Table

# Files and pipes have no width; names are not broken over lines there.
_WIDE_COLUMNS = 240


class Column(NamedTuple):
    """A column of a printed table."""

    title: str
    always: bool = True
    """Whether it is shown however narrow the terminal is."""
    is_name: bool = False
    """Whether it names a row rather than holding a figure."""


def print_fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print all columns if they fit, else those that are always shown and a note on the others."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE_COLUMNS
    table = _table(columns, rows)
    options = console.options.update(max_width=_WIDE_COLUMNS)
    if Measurement.get(console, options, table).maximum <= console.width:
        console.print(table)
        return
    kept = [at for at, one in enumerate(columns) if one.always]
    console.print(_table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows]))
    left_out = ", ".join(column.title for column in columns if not column.always)
    click.echo(f"use a wider terminal or --json to see more: {left_out}")


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in columns:
        if column.is_name:
            table.add_column(column.title, overflow="fold")
        else:
            table.add_column(column.title, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def cost_text(nusd: int, unknown: int, *, of: int | None = None) -> str:
    """The known cost in dollars. unknown: the number of requests of unknown cost; if that is all of
    them, the sum is unknown. of: the number of requests to average over; None for the sum."""
    from headrace.cli.gateway.ledger import dollars

    if unknown and not nusd:
        return "unknown"
    told = dollars(nusd) if of is None else f"{nusd / max(1, of) / NUSD_PER_USD:.6f}"
    return f"≥ {told}" if unknown else told
