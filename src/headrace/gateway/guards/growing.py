"""A text that grows, as one finder looks at it: what was found in it, and how far that is decided.

Decided is up to where no match can begin any more that is not seen whole.
"""

from __future__ import annotations

from typing import Protocol

from headrace.gateway.guards.guard import Finder, Match

_LOOKS_PER_WINDOW = 8


class GrowingText(Protocol):
    """A text that is checked while it grows; positions count from its beginning.

    total: its length. cleared: below this position everything has been decided.
    """

    @property
    def total(self) -> int: ...

    @property
    def cleared(self) -> int: ...

    @property
    def held_chars(self) -> int:
        """How many characters are undecided, as the finder reads them."""

    def grow(self, text: str) -> None:
        """More of it."""

    def end(self) -> None:
        """It is whole."""

    def found(self) -> list[Match]:
        """Matches that are decided now and were not before, in order and without overlaps."""


class Growing:
    """A text that is looked at as it is."""

    __slots__ = (
        "_base", "_ended", "_finder", "_more", "_next_look", "_step_chars", "_text", "cleared",
        "total",
    )  # fmt: skip

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        # Each look is at a whole window: one for every few words, not for every token.
        self._step_chars = max(1, finder.window_chars // _LOOKS_PER_WINDOW)
        # What is still needed of the text, from `_base` on.
        self._text = ""
        self._base = 0
        # What came after it, since the last look.
        self._more: list[str] = []
        self._next_look = finder.window_chars + self._step_chars
        self._ended = False
        self.total = 0
        self.cleared = 0

    @property
    def held_chars(self) -> int:
        """See GrowingText."""
        return self.total - self.cleared

    def grow(self, text: str) -> None:
        """See GrowingText."""
        self._more.append(text)
        self.total += len(text)

    def end(self) -> None:
        """See GrowingText."""
        self._ended = True

    def found(self) -> list[Match]:
        """See GrowingText."""
        if not self._ended and self.total < self._next_look:
            return []
        window_chars = self._finder.window_chars
        boundary = self.total if self._ended else self.total - window_chars
        self._text = "".join((self._text, *self._more))
        self._more.clear()
        base = self._base
        decided: list[Match] = []
        cleared = max(boundary, self.cleared)
        for one in self._finder.find(self._text, self.cleared - base):
            match = one._replace(start=one.start + base, end=one.end + base)
            if match.start >= boundary and not self._ended:
                break
            if match.end == self.total and not self._ended:  # it may go on
                cleared = match.start
                break
            decided.append(match)
            cleared = max(cleared, match.end)
        self.cleared = cleared
        # A match that grows beyond a window is looked at whole: less and less often, so that each
        # of its characters is looked at a few times.
        self._next_look = max(
            cleared + window_chars + self._step_chars,
            self.total + self.held_chars // _LOOKS_PER_WINDOW,
        )
        keep = cleared - self._finder.look_back_chars - base
        if keep > 0:
            self._text = self._text[keep:]
            self._base += keep
        return decided
