"""Stop strings in a stream of text.

Held back is exactly the longest suffix of the text that is a proper prefix of some stop string:
less would let part of a stop string out, more would delay text that can no longer be one. The match
that ends first wins, of several ending together the longest, which does not depend on how the
stream was cut. (The match that starts first could not be known without waiting.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import RequestError


class StopResult(NamedTuple):
    """The text up to a stop string, and the string that was found."""

    text: str
    """Released now."""
    stop: str | None
    """The stop string that ended the stream, None while it goes on."""


class StopStrings:
    """A search of one stream for stop strings.

    stops: the strings; none makes this a pass-through. include_stop: the stop string itself is
    part of the output. Raises RequestError for an empty string, which would end every stream.
    """

    def __init__(self, stops: Sequence[str] = (), *, include_stop: bool = False) -> None:
        if any(not stop for stop in stops):
            raise RequestError("stop may not contain an empty string; remove it", param="stop")
        self._stops = tuple(dict.fromkeys(stops))
        self._include = include_stop
        self._held = ""
        self._matched: str | None = None

    def feed(self, text: str, *, search: bool = True) -> StopResult:
        """Take more text; after a match everything is dropped and the match is told again.

        search: whether a stop string may end in this text. One that ends in later text may begin
        in it either way.
        """
        if self._matched is not None:
            return StopResult("", self._matched)
        if not self._stops:
            return StopResult(text, None)
        # No match can start before the held text: it would have been held as well.
        window = self._held + text
        match = self._first_match(window) if search else None
        if match is not None:
            start, stop = match
            self._held, self._matched = "", stop
            return StopResult(window[: start + len(stop) if self._include else start], stop)
        free = self._releasable(window)
        self._held = window[free:]
        return StopResult(window[:free], None)

    def flush(self) -> str:
        """The held text, once no more will come."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, window: str) -> tuple[int, str] | None:
        """(start, stop string) of the match that ends first, the longest of those.

        It ends beyond the held text: what ended there was either found or not to be searched.
        """
        held = len(self._held)
        found = [
            (start, stop)
            for stop in self._stops
            if (start := window.find(stop, max(0, held - len(stop) + 1))) >= 0
        ]
        return min(found, key=lambda at: (at[0] + len(at[1]), at[0]), default=None)

    def _releasable(self, window: str) -> int:
        """How much of a window without a match can no longer become part of one."""
        free = len(window)
        for stop in self._stops:
            start = window.find(stop[0], max(0, len(window) - len(stop) + 1))
            while 0 <= start < free:
                if stop.startswith(window[start:]):
                    free = start
                start = window.find(stop[0], start + 1)
        return free
