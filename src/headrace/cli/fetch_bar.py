"""How far a fetch is, on stderr: a bar in a terminal, a line per file elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headrace.weights.store.fetch import FetchProgress

# Logs get one line for each of these shares of a large file, and none between.
_LINE_EVERY = 0.1
_LARGE_BYTES = 100_000_000


@contextmanager
def fetch_bar() -> Iterator[Callable[[FetchProgress], None]]:
    """What to call with every step. Nothing is written unless something is to come."""
    shown: _Bar | _Lines = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.show
    finally:
        shown.end()


def size_text(num_bytes: float) -> str:
    """Bytes for people; a GB is 10^9."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.2f} {unit}"
    return f"{num_bytes:.0f} B"


class _Bar:
    """One bar over all files, with the name of the one that is coming."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def show(self, at: FetchProgress) -> None:
        if self._progress is None or self._task is None:
            if at.state == "here":
                return
            self._progress, self._task = _start(at)
        self._progress.update(
            self._task,
            description=f"{at.file} ({at.number}/{at.num_files})",
            completed=at.done_bytes,
            total=at.total_bytes,
        )

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _start(at: FetchProgress) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = Progress(
        TextColumn("{task.description}", markup=False),  # names of files may have brackets
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.start()
    # What is here already is no part of the speed.
    return progress, progress.add_task(at.file, total=at.total_bytes, completed=at.done_bytes)


class _Lines:
    """A line when a file is there, and now and then while a large one comes."""

    def __init__(self) -> None:
        self._said = 0.0

    def show(self, at: FetchProgress) -> None:
        where = f"{at.file} ({at.number}/{at.num_files})"
        if at.state == "begun":
            self._said = 0.0
        elif at.state == "done":
            click.echo(f"fetched {where}, {size_text(at.size_bytes)}", err=True)
        elif at.state == "coming" and at.size_bytes >= _LARGE_BYTES:
            share = at.file_bytes / at.size_bytes
            if share >= self._said + _LINE_EVERY and share < 1:
                self._said = share
                click.echo(f"fetching {where}: {share:.0%}", err=True)

    def end(self) -> None:
        """Nothing is left open."""
