"""What a command says to people beside its output: on stderr, coloured where that is wanted."""

from __future__ import annotations

import os
from typing import Literal

import click

from headrace.cli.visible import visible

Tone = Literal["bright_black", "red", "yellow"]


def note(text: str, tone: Tone = "bright_black", *, nl: bool = True) -> None:
    """Write to stderr, with nothing that a terminal acts on: parts may be a stranger's.

    Colours are for terminals, and for nobody where NO_COLOR is set.
    """
    # None lets click look whether stderr is a terminal (https://no-color.org for the variable).
    color = False if os.environ.get("NO_COLOR") else None
    click.secho(visible(text), fg=tone, err=True, nl=nl, color=color)
