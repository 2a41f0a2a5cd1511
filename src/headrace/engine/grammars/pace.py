"""Which grammars are too slow to be questioned within a step.

Limits bound what a grammar may take for a token, but not to less than a step of others takes: one
that is made to do harm takes up to a third of a second (headrace/structured/limits.py). One that
was seen to take long is questioned beside the steps from then on (engine/grammars/beside.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW_S = 4e-3
"""Seconds of a processor that one question may take: more than masks of ordinary schemas by a
hundred times, and twice a step of the smallest model."""

SLOW_TO_COMPILE_S = 1.0
"""By the clock, of a grammar that is slow until it has shown that it is not: two hundred times what
schemas in use take alone."""

WATCHED_QUESTIONS = 64
"""Questions whose time on the processor is taken once one took long by the clock. The clock is four
times as cheap, but may count what other processes took."""

QUICK_QUESTIONS = 16
"""In a row, beside the steps, after which a grammar is questioned within them again."""


class Pace:
    """The record of what the matchers of one grammar took, of all its requests. Not thread-safe:
    whoever is questioned beside the steps is timed there, and entered between them."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.is_slow = False
        """Whether it is to be questioned beside the steps."""
        self.begin = clock
        """Gives what `end` wants, before a question."""
        self._clock = clock
        self._processor_clock = processor_clock
        self._num_watched = 0
        """Questions that are still watched."""
        self._num_quick = 0

    def compiled(self, spent_s: float) -> None:
        """The grammar was compiled, which took so long; before any question."""
        self.is_slow |= spent_s > SLOW_TO_COMPILE_S

    def end(self, begun_s: float) -> None:
        """A question within a step has its answer."""
        is_long = self.begin() - begun_s > SLOW_S
        if self._num_watched:
            self._num_watched = 0 if is_long else self._num_watched - 1
            self.is_slow |= is_long
        elif is_long:
            self._num_watched = WATCHED_QUESTIONS
        else:
            return
        self.begin = self._processor_clock if self._num_watched else self._clock

    def enter(self, spent_s: float) -> None:
        """A question beside the steps took so long of the processor."""
        self._num_quick = 0 if spent_s > SLOW_S else self._num_quick + 1
        if self._num_quick >= QUICK_QUESTIONS:
            self.is_slow, self._num_quick = False, 0
