"""The text of an answer, read by a coroutine while it still comes.

Each method that may have to wait is a generator: it yields whenever it needs more text. What it
then decides depends on the text alone, never on how the text was cut: a method decides once no
further text could change the decision, and passes on all text that no longer matters to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Step: TypeAlias = Generator[None, None, T]
Sink: TypeAlias = Callable[[str], object]

_SPACE = re.compile(r"[ \t\r\n]*")


class TextSource:
    """The text that has come and is not yet read."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._held: int | None = None
        self._ended = False

    def feed(self, text: str) -> None:
        """Take more text."""
        cut = self._at if self._held is None else self._held
        self._text = self._text[cut:] + text
        self._at -= cut
        if self._held is not None:
            self._held = 0

    def end(self) -> None:
        """No more text will come."""
        self._ended = True

    def hold(self, back: int = 0) -> None:
        """Remember this place, so many characters back, to return to."""
        self._held = self._at - back

    def release(self) -> None:
        """Forget the place to return to."""
        self._held = None

    def rewind(self, length: int) -> str:
        """Return to the place, read so many characters from there, and forget it."""
        assert self._held is not None
        piece = self._text[self._held : self._held + length]
        self._at, self._held = self._held + len(piece), None
        return piece

    def held_chars(self) -> int:
        """How many characters lie between the place to return to and here."""
        return 0 if self._held is None else self._at - self._held

    def unread(self, length: int) -> None:
        """Go back by what was read last."""
        self._at -= length

    def until(self, markers: Sequence[str], sink: Sink, *, limit: int | None = None) -> Step[str]:
        """Read up to the first of the markers, the longest of several there; what comes before it
        goes to the sink. The marker, which is read too, or "" at the end of the text.

        limit: read at most so many characters; "" is returned then as well.
        """
        while True:
            start, found = _first(self._text, self._at, markers)
            partial = len(self._text) if self._ended else _partial(self._text, self._at, markers)
            free = min(start, partial) if found else partial
            if limit is not None:
                if free > self._at + limit:
                    sink(self._text[self._at : self._at + limit])
                    self._at += limit
                    return ""
                limit -= free - self._at
            if free > self._at:
                sink(self._text[self._at : free])
                self._at = free
            if found and free == start and (self._ended or partial > start):
                self._at = start + len(found)
                return found
            if self._at == len(self._text) and self._ended:
                return ""
            yield

    def at(self, markers: Sequence[str]) -> Step[str]:
        """The longest of the markers that the text continues with, which is read, or ""."""
        while True:
            rest = self._text[self._at : self._at + max(map(len, markers), default=0)]
            longer = [
                marker for marker in markers if len(rest) < len(marker) and marker.startswith(rest)
            ]
            if not longer or self._ended:
                found = max(filter(rest.startswith, markers), key=len, default="")
                self._at += len(found)
                return found
            yield

    def peek(self) -> Step[str]:
        """The next character, "" at the end of the text."""
        while self._at == len(self._text) and not self._ended:
            yield
        return self._text[self._at : self._at + 1]

    def run(self, characters: re.Pattern[str], sink: Sink) -> Step[None]:
        """Pass a run of characters of a class to the sink."""
        while True:
            match = characters.match(self._text, self._at)
            assert match is not None
            if match.end() > self._at:
                sink(match.group())
                self._at = match.end()
            if self._at < len(self._text) or self._ended:
                return
            yield

    def take(self, length: int) -> Step[str]:
        """The next characters: so many, or fewer at the end of the text."""
        while len(self._text) < self._at + length and not self._ended:
            yield
        piece = self._text[self._at : self._at + length]
        self._at += len(piece)
        return piece

    def skip_space(self) -> Step[None]:
        """Read white space."""
        yield from self.run(_SPACE, _nowhere)


def _nowhere(text: str) -> None:
    """A sink for what means nothing."""


def _first(text: str, at: int, markers: Sequence[str]) -> tuple[int, str]:
    """Where the first of the markers starts, and which it is; (end of the text, "") for none."""
    found = [(start, -len(mark), mark) for mark in markers if (start := text.find(mark, at)) >= 0]
    start, _, marker = min(found, default=(len(text), 0, ""))
    return start, marker


def _partial(text: str, at: int, markers: Sequence[str]) -> int:
    """Where the longest end of the text starts that is a proper prefix of a marker."""
    longest = max(map(len, markers), default=1) - 1
    firsts = {marker[0] for marker in markers}
    for start in range(max(at, len(text) - longest), len(text)):
        if text[start] not in firsts:
            continue
        end = text[start:]
        if any(len(end) < len(marker) and marker.startswith(end) for marker in markers):
            return start
    return len(text)
