"""The matrix in a terminal: tables that are too wide for it stand in several parts."""

from __future__ import annotations

from datetime import tzinfo

from rich.console import Group
from rich.text import Text

from headrace.bench.providers import tables
from headrace.bench.providers.figures import Matrix
from headrace.bench.providers.page import subtitle
from headrace.bench.report.table import sheet_table
from headrace.page.sheet import Cell, Sheet

# What a column takes beside its text, and the table's edge.
_GAP, _EDGE = 3, 1
# A name may break between words, and what stands below it may be cut.
_WIDEST_NAME = 24


def matrix_table(of: Matrix, *, width: int, zone: tzinfo | None = None) -> Group:
    """Everything that the page has, but for what is over time. width: in characters."""
    if of.began_at is None:
        return Group(Text("nothing has been measured yet"))
    found = [part for one in tables.sheets(of) for part in parts(one, width)]
    return Group(Text(f"  {subtitle(of, zone)}"), *[sheet_table(one) for one in found])


def parts(of: Sheet, width: int) -> list[Sheet]:
    """The sheet, or several with the first column in each, none wider unless one column is."""
    names, *widths = [_width(of, at) for at in range(len(of.columns))]
    words = [len(word) for row in of.rows for word in row[0].text.split()]
    names = min(max(min(names, _WIDEST_NAME), *words, 1), width // 2)
    if of.names > 1:
        return [of]
    groups: list[list[int]] = [[]]
    used = names + _GAP + _EDGE
    for at, needed in enumerate(widths, start=1):
        if groups[-1] and used + needed + _GAP > width:
            groups.append([])
            used = names + _GAP + _EDGE
        groups[-1].append(at)
        used += needed + _GAP
    made = [
        of._replace(
            title=of.title if number == 0 else f"{of.title}, continued",
            columns=tuple(of.columns[at] for at in (0, *group)),
            rows=tuple(tuple(row[at] for at in (0, *group)) for row in of.rows),
            notes=of.notes if number == len(groups) - 1 else (),
        )
        for number, group in enumerate(groups)
    ]
    # What stands below a name is said once.
    plain = [one._replace(rows=_plain(one)) for one in made[1:]]
    return [made[0], *plain]


def _plain(of: Sheet) -> tuple[tuple[Cell, ...], ...]:
    return tuple((row[0]._replace(note=""), *row[1:]) for row in of.rows)


def _width(of: Sheet, at: int) -> int:
    texts = [of.columns[at], *[text for row in of.rows for text in (row[at].text, row[at].note)]]
    return max(len(text) for text in texts)
