"""How many of a trace's requests are made, while that takes its time: one line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from headrace.bench.load.live import CLEAR_LINE, REFRESH_S

TraceProgress = Callable[[int, int], object]
"""Called with the number that is made, and of how many, after each; with both equal at the end."""


def no_progress(_made: int, _of: int) -> None:
    """For logs, and where the work is short."""


def make_progress(
    file: TextIO, *, quiet: bool, clock_s: Callable[[], float] = time.monotonic
) -> TraceProgress:
    """As fits the file that it is shown on."""
    return no_progress if quiet or not file.isatty() else _Line(file, clock_s)


class _Line:
    """A progress line, drawn every REFRESH_S, and gone in the end. Nothing is drawn of what takes
    less.
    """

    def __init__(self, file: TextIO, clock_s: Callable[[], float]) -> None:
        self._file = file
        self._clock_s = clock_s
        self._due_s = clock_s() + REFRESH_S
        self._drawn = False

    def __call__(self, made: int, of: int) -> None:
        if made >= of:
            if self._drawn:
                self._file.write(f"\r{CLEAR_LINE}")
                self._file.flush()
                self._drawn = False
            return
        now_s = self._clock_s()
        if now_s >= self._due_s:
            self._due_s = now_s + REFRESH_S
            self._file.write(f"\rmaking requests: {made:,} of {of:,}{CLEAR_LINE}")
            self._file.flush()
            self._drawn = True
