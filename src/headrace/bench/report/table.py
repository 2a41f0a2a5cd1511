"""The summary of a run for a terminal.

Texts from servers are shown without control characters: an error message must not move the cursor.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.bench.report import sheet
from headrace.bench.report.sheet import Cell, Sheet
from headrace.bench.summary import Summary


def summary_table(summary: Summary) -> Group:
    """Latencies, rates, requests, goodput, tokens, the client's verdict, and what metrics mean."""
    parts: list[RenderableType] = [
        sheet_table(sheet.latencies(summary)),
        sheet_table(sheet.rates(summary)),
        sheet_table(sheet.requests(summary)),
    ]
    if summary.goodput is not None:
        parts.append(sheet_table(sheet.goodput(summary)))
    parts.append(sheet_table(sheet.tokens(summary)))
    parts.append(verdict(summary))
    parts.append(_footer(summary))
    return Group(*parts)


def sheet_table(of: Sheet) -> Group:
    """One table with its notes below it."""
    table = Table(
        title=printable(of.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for at, column in enumerate(of.columns):
        table.add_column(
            printable(column),
            justify="left" if at < of.names else "right",
            # Figures keep together; names may break.
            no_wrap=at >= of.names,
        )
    for row in of.rows:
        table.add_row(*[_cell(cell) for cell in row])
    return Group(table, *[Text(f"  {printable(note)}", style="dim") for note in of.notes], Text())


def verdict(summary: Summary) -> Text:
    """The sentences on whether the client was the limit."""
    bound = summary.client.client_bound
    style = {True: "bold red", False: "green", None: "yellow"}[bound]
    return Text("\n".join(f"  {one}" for one in summary.client.sentences), style=style)


def _footer(summary: Summary) -> Text:
    """Definitions in a few lines; the page has them as a table."""
    lines = [f"Metrics as defined by {summary.source}:"]
    lines += [f"{row.name}: {row.counts}" for row in summary.table]
    return Text("\n" + "\n".join(f"  {printable(line)}" for line in lines), style="dim")


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
