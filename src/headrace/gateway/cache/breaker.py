"""What is left alone for a while once it failed, so that no request waits for it in vain."""

from __future__ import annotations

from collections.abc import Callable

# One lost call may be a moment's; three in a row are not.
_MOST_FAILURES = 3
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 30.0


class Breaker:
    """Closed until three calls in a row fail; open then for a second, and twice as long after each
    trial that fails, at most 30 seconds. clock_s: a monotonic clock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failures = 0
        self._rest_s = 0.0
        self._open_until_s = 0.0
        self._is_tried = False

    def lets_through(self) -> bool:
        """Whether a call may be made; it has to be followed by `succeeded`, `failed` or
        `did_not_count`. Once a rest is over one call at a time is a trial."""
        if self._rest_s == 0.0:
            return True
        if self._is_tried or self._clock_s() < self._open_until_s:
            return False
        self._is_tried = True
        return True

    def succeeded(self) -> bool:
        """Whether it was open until now."""
        was_open = self._rest_s > 0.0
        self._failures = 0
        self._rest_s = 0.0
        self._is_tried = False
        return was_open

    def failed(self) -> bool:
        """Whether it opens by this one."""
        self._failures += 1
        was_trial, self._is_tried = self._is_tried, False
        if self._rest_s == 0.0 and self._failures < _MOST_FAILURES:
            return False
        if self._rest_s > 0.0 and not was_trial:
            return False  # a call from before it opened
        was_open = self._rest_s > 0.0
        self._rest_s = min(2 * self._rest_s or _FIRST_REST_S, _LONGEST_REST_S)
        self._open_until_s = self._clock_s() + self._rest_s
        return not was_open

    def did_not_count(self) -> None:
        """The call was given up for reasons of its own."""
        self._is_tried = False
