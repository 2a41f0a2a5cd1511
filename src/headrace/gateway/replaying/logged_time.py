"""The duration of a request, as the gateway logged it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.gateway.request_log.record import LogRecord

# A record is written a moment after its answer.
_TRY_AGAIN_S = 0.02
_MOST_S = 1.0
# The log may never have some requests: it keeps a sample, or belongs to another gateway.
_MOST_IN_VAIN_S = 5.0


class LoggedTime:
    """A lookup of durations in the request log by `find`; raises as `find` does."""

    def __init__(
        self,
        find: Callable[[str], LogRecord | None],
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find = find
        self._clock_s = clock_s
        self._sleep = sleep
        self._left_s = _MOST_IN_VAIN_S

    def __call__(self, request_id: str) -> float | None:
        """Milliseconds; None if the log does not have it soon."""
        began_s = self._clock_s()
        while (record := self._find(request_id)) is None:
            waited_s = self._clock_s() - began_s
            if waited_s >= min(_MOST_S, self._left_s):
                self._left_s -= waited_s
                return None
            self._sleep(_TRY_AGAIN_S)
        return record.total_ms
