"""The summary of a run for a terminal.

It fits 80 columns, where latencies have no intervals; in a wide terminal they have, and narrow
tables stand side by side. Texts from servers are shown without control characters: an error message
must not move the cursor.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.bench.report import sheet
from headrace.bench.report.latency_sheet import latencies, narrow_latencies
from headrace.bench.summary import Summary
from headrace.page.sheet import Cell, Sheet

SIDE_BY_SIDE = 116
"""Columns from which on small tables are printed side by side."""

_BOUNDLESS = 1000
"""Columns in which any of our tables fits."""

_LEAST_NAME = 9
"""Characters that a name keeps, however wide the figures beside it are."""


class SummaryTable:
    """Latencies, rates, the small tables, the client's verdict, and what metrics mean."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """By the columns that there are."""
        summary = self._summary
        wide = sheet_table(latencies(summary))
        if _fits(wide, console, options):
            yield wide
        else:
            yield sheet_table(narrow_latencies(summary), tight=True)
        left = sheet_table(sheet.rates(summary))
        right = [sheet_table(one) for one in sheet.beside(summary)]
        if options.max_width >= SIDE_BY_SIDE:
            grid = Table.grid(padding=(0, 2))
            grid.add_column(ratio=1)
            grid.add_column(ratio=1)
            grid.add_row(left, Group(*right))
            yield grid
        else:
            yield left
            yield from right
        yield verdict(summary)
        yield _footer(summary)


def _fits(group: Group, console: Console, options: ConsoleOptions) -> bool:
    """Whether its table does, unbroken; notes may break."""
    boundless = options.update(max_width=_BOUNDLESS)
    wanted = Measurement.get(console, boundless, group.renderables[0]).maximum
    return wanted <= options.max_width


def summary_table(summary: Summary) -> SummaryTable:
    """To be printed by rich; it finds out how wide it may be when it is drawn."""
    return SummaryTable(summary)


class SheetTable:
    """One table with its notes below it, those of cells beside them where there is room."""

    def __init__(self, of: Sheet) -> None:
        self._of = of

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """By the columns that there are."""
        beside = tuple(
            tuple(Cell(f"{cell.text} {cell.note}".strip(), "", cell.verdict) for cell in row)
            for row in self._of.rows
        )
        wide = sheet_table(self._of._replace(rows=beside), tight=True)
        yield wide if _fits(wide, console, options) else sheet_table(self._of, tight=True)


def sheet_table(of: Sheet, *, tight: bool = False) -> Group:
    """One table with its notes below it. tight: columns stand closer together."""
    table = Table(
        title=printable(of.title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0) if tight else (0, 1),
    )
    for at, column in enumerate(of.columns):
        table.add_column(
            printable(column),
            justify="left" if at < of.names else "right",
            # Figures keep together; names may break.
            no_wrap=at >= of.names,
            min_width=min(_LEAST_NAME, len(column)) if at < of.names else None,
        )
    for row in of.rows:
        table.add_row(*[_cell(cell) for cell in row])
    return Group(table, *[_indented(printable(note), "dim") for note in of.notes], Text())


def verdict(summary: Summary) -> Group:
    """The sentences on whether the client was the limit."""
    bound = summary.client.client_bound
    style = {True: "bold red", False: "green", None: "yellow"}[bound]
    return Group(*[_indented(one, style) for one in summary.client.sentences])


def _indented(line: str, style: str) -> Padding:
    """Where it breaks, the next line begins below it."""
    return Padding(Text(line, style=style), (0, 0, 0, 2))


def _footer(summary: Summary) -> Padding:
    """Definitions in a few lines; the page has them as a table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for row in summary.table:
        table.add_row(printable(row.name), printable(row.counts))
    title = Text(f"Metrics as defined by {printable(summary.source)}:")
    return Padding(Group(title, table), (1, 0, 0, 2), style="dim")


def _cell(cell: Cell) -> Text:
    style = {True: "green", False: "red", None: ""}[cell.verdict]
    made = Text(printable(cell.text), style=style)
    if cell.note:
        made.append(f"\n{printable(cell.note)}", style="dim")
    return made


def printable(text: str) -> str:
    """Without control and format characters, such as those that begin a terminal's commands."""
    return "".join("�" if unicodedata.category(one) in _HIDDEN else one for one in text)


_HIDDEN: Sequence[str] = ("Cc", "Cf", "Cs")
