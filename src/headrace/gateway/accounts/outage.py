"""Periods in which a store cannot be reached: detected, logged and reported once each."""

from __future__ import annotations

import logging
from collections.abc import Callable

OnOutage = Callable[[str, float | None], None]
"""Called with the problem when an outage begins, and with its duration in seconds when it ends; it
must not wait."""

_logger = logging.getLogger(__name__)


class Outage:
    """The state of a store that may be out of reach, logged when it changes.

    what: the store's name for people. meanwhile: what happens to requests. clock_s: a monotonic
    clock, in seconds.
    """

    def __init__(
        self, what: str, meanwhile: str, *, clock_s: Callable[[], float], on_change: OnOutage | None
    ) -> None:
        self._what = what
        self._meanwhile = meanwhile
        self._clock_s = clock_s
        self._on_change = on_change
        self._since_s: float | None = None
        self.problem = ""
        """What was the matter last; "" while it is reached."""

    def __bool__(self) -> bool:
        """Whether it cannot be reached."""
        return self._since_s is not None

    def begin(self, problem: str) -> bool:
        """It was not reached; whether that is new."""
        self.problem = problem
        if self._since_s is not None:
            return False
        self._since_s = self._clock_s()
        _logger.error("%s cannot be reached (%s): %s", self._what, problem, self._meanwhile)
        if self._on_change is not None:
            self._on_change(problem, None)
        return True

    def end(self) -> None:
        """It is reached; nothing where it was all the time."""
        if self._since_s is None:
            return
        lasted_s, self._since_s = self._clock_s() - self._since_s, None
        _logger.warning("%s can be reached again after %.1f s", self._what, lasted_s)
        problem, self.problem = self.problem, ""
        if self._on_change is not None:
            self._on_change(problem, lasted_s)
