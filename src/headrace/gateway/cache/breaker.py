"""A circuit breaker: what fails is left alone for a while, so that no request waits in vain."""

from __future__ import annotations

from collections.abc import Callable

# A single failure may pass; three in a row do not.
_MOST_FAILURES = 3
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 30.0


class Breaker:
    """A circuit breaker for calls, counted by `clock_s`, a monotonic clock.

    It opens after three failures in a row for a second, then twice as long after each trial that
    fails, at most 30 seconds.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failures = 0
        self._rest_s = 0.0
        self._open_until_s = 0.0
        self._is_tried = False

    def lets_through(self) -> bool:
        """Whether a call may be made; `succeeded`, `failed` or `did_not_count` has to follow. After
        a rest, one call at a time is a trial."""
        if self._rest_s == 0.0:
            return True
        if self._is_tried or self._clock_s() < self._open_until_s:
            return False
        self._is_tried = True
        return True

    def succeeded(self) -> bool:
        """Record a success; return whether the breaker was open."""
        was_open = self._rest_s > 0.0
        self._failures = 0
        self._rest_s = 0.0
        self._is_tried = False
        return was_open

    def failed(self) -> bool:
        """Record a failure; return whether it opens the breaker."""
        self._failures += 1
        was_trial, self._is_tried = self._is_tried, False
        if self._rest_s == 0.0 and self._failures < _MOST_FAILURES:
            return False
        if self._rest_s > 0.0 and not was_trial:
            return False  # a call begun before it opened
        was_open = self._rest_s > 0.0
        self._rest_s = min(2 * self._rest_s or _FIRST_REST_S, _LONGEST_REST_S)
        self._open_until_s = self._clock_s() + self._rest_s
        return not was_open

    def did_not_count(self) -> None:
        """Record a call that was given up for other reasons."""
        self._is_tried = False
