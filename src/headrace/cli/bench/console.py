"""Where the tables of `headrace bench` are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LOG_WIDTH = 120
_ANY_WIDTH = 10_000


def wide_console() -> Console:
    """As wide as the terminal; in a log nothing is as narrow as a terminal may be."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, LOG_WIDTH)
    return console


def print_table(table: Table) -> None:
    """As wide as its cells need where it does not go to a terminal: nothing is wrapped there."""
    console = wide_console()
    if not console.is_terminal:
        console.width = max(console.width, _ANY_WIDTH)
    console.print(table)
