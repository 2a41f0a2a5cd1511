"""Where the tables of `headrace bench` are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 120


def wide_console() -> Console:
    """As wide as the terminal; in a log nothing is as narrow as a terminal may be."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, LOG_WIDTH)
    return console
