"""The run as it goes: rate, requests in flight, TTFT and TPOT so far, errors.

On a terminal one block that is drawn anew, elsewhere a line every LINE_EVERY_S seconds, both on
stderr. Latencies are of some replies, the latest SHOWN_SAMPLES of those: the summary at the end is
of all.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable
from typing import Protocol, TextIO

from headrace.bench.load.progress import Progress
from headrace.bench.statistics import percentile

REFRESH_S = 0.5
LINE_EVERY_S = 5.0
SHOWN_SAMPLES = 1000
# ECMA-48, and DEC's for the cursor.
_LINE_UP, CLEAR_LINE, _CLEAR_BELOW = "\x1b[A", "\x1b[K", "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class View(Protocol):
    """A display of a run. reads: whether it wants latencies, for which replies are looked at."""

    reads: bool

    def show(self, elapsed_s: float, progress: Progress) -> None:
        """Called every REFRESH_S."""

    def close(self) -> None:
        """The run is over."""


class Quiet:
    """A view that shows nothing."""

    reads = False

    def show(self, elapsed_s: float, progress: Progress) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Figures:
    """The figures shown while a run goes on, as words; keeps the samples that rates need."""

    def __init__(self, requests: int | None, duration_s: float | None) -> None:
        self._requests = requests
        self._duration_s = duration_s
        self._ttft_ms: deque[float] = deque(maxlen=SHOWN_SAMPLES)
        self._tpot_ms: deque[float] = deque(maxlen=SHOWN_SAMPLES)
        self._before: tuple[float, int] = (0.0, 0)
        self._rate = 0.0

    def add(self, elapsed_s: float, progress: Progress) -> list[tuple[str, str]]:
        """Names and values of one look."""
        self._ttft_ms.extend(progress.ttft_ms)
        self._tpot_ms.extend(progress.tpot_ms)
        counts = progress.counts
        since_s, ended_before = self._before
        # Over a second at least: over less it is mostly noise.
        if elapsed_s - since_s >= 1:
            self._rate = (counts.ended - ended_before) / (elapsed_s - since_s)
            self._before = (elapsed_s, counts.ended)
        of = f" of {self._requests:,}" if self._requests is not None else ""
        limit = f" of {self._duration_s:.0f}" if self._duration_s is not None else ""
        waiting = f" (+{counts.waiting:,} waiting)" if counts.waiting else ""
        return [
            ("time", f"{elapsed_s:.0f}{limit} s"),
            ("ended", f"{counts.ended:,}{of}"),
            ("rate", f"{self._rate:,.1f}/s"),
            ("in flight", f"{counts.in_flight:,}{waiting}"),
            ("TTFT p50/p99", _pair(self._ttft_ms)),
            ("TPOT p50/p99", _pair(self._tpot_ms)),
            ("errors", f"{counts.failed:,}"),
        ]


def _pair(samples_ms: deque[float]) -> str:
    if not samples_ms:
        return "-"
    ordered = sorted(samples_ms)
    return f"{percentile(ordered, 0.5):,.1f}/{percentile(ordered, 0.99):,.1f} ms"


class Lines:
    """Progress lines for logs."""

    reads = True

    def __init__(
        self, figures: Figures, write: Callable[[str], None], every_s: float = LINE_EVERY_S
    ) -> None:
        self._figures = figures
        self._write = write
        self._every_s = every_s
        self._shown_s = 0.0

    def show(self, elapsed_s: float, progress: Progress) -> None:
        """A line where it is time for one."""
        told = self._figures.add(elapsed_s, progress)
        if elapsed_s - self._shown_s >= self._every_s:
            self._shown_s = elapsed_s
            self._write(", ".join(f"{name} {value}" for name, value in told))

    def close(self) -> None:
        """Nothing is open."""


class Block:
    """A progress display for terminals: two lines, names and values, drawn over the previous ones.

    It is plain text, written in microseconds, because it runs on the loop that stamps chunks.
    """

    reads = True

    def __init__(
        self,
        figures: Figures,
        file: TextIO,
        columns: Callable[[], int] | None = None,
    ) -> None:
        self._figures = figures
        self._file = file
        self._columns = columns or (lambda: _columns(file))
        self._drawn = False

    def show(self, elapsed_s: float, progress: Progress) -> None:
        """Draw it."""
        told = self._figures.add(elapsed_s, progress)
        widths = [max(len(name), len(value)) for name, value in told]
        # A line that the terminal wraps would be two, and the next drawing begin too low.
        most = max(1, self._columns() - 1)
        lines = [
            "  ".join(one.rjust(width) for one, width in zip(row, widths, strict=True))[:most]
            for row in zip(*told, strict=True)
        ]
        self._file.write(self._start + f"{CLEAR_LINE}\n".join(lines) + CLEAR_LINE)
        self._file.flush()
        self._drawn = True

    @property
    def _start(self) -> str:
        """To where the first line begins."""
        return f"\r{_LINE_UP}" if self._drawn else _HIDE_CURSOR

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._file.write(f"{self._start}{_CLEAR_BELOW}{_SHOW_CURSOR}")
        self._file.flush()


def _columns(file: TextIO) -> int:
    """Of the terminal that `file` is; stdout, which others ask, may be a pipe."""
    try:
        return os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def make_view(file: TextIO, *, quiet: bool, requests: int | None, duration_s: float | None) -> View:
    """As fits the file that it is shown on."""
    if quiet:
        return Quiet()
    figures = Figures(requests, duration_s)
    if file.isatty():
        return Block(figures, file)
    return Lines(figures, lambda line: print(line, file=file, flush=True))
