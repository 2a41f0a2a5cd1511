"""A table, before anybody decides how it looks.

A terminal and a page draw the same sheet, so that both show the same figures under the same names.
A cell's note stands below it: the interval in which the true value lies.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """A figure, or a name. verdict: good or bad news, for a colour beside the words."""

    text: str
    note: str = ""
    verdict: bool | None = None


class Sheet(NamedTuple):
    """A table. The first `names` columns are text, the others figures, set to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    names: int = 1
