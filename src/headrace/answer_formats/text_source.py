"""The text of an answer, read by a coroutine while it still comes.

Each method that may have to wait is a generator: it yields whenever it needs more text. What it
then decides depends on the text alone, never on how the text was cut: a method decides once no
further text could change the decision, and passes on all text that no longer matters to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

    @property
    def all_read(self) -> bool:
        """Whether nothing that has come is still to be read, or may be read again."""
        return self._at == len(self._text) and self._held is None

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
        marks = _marks(tuple(markers))
        while True:
            start, found = marks.first(self._text, self._at)
            partial = len(self._text) if self._ended else marks.partial(self._text, self._at)
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


@dataclass(frozen=True, slots=True)
class _Marks:
    """Marks to search for, as patterns: a text is searched whenever a piece of it has come."""

    whole: re.Pattern[str] | None
    """One of the marks, the longest of several at a place; None for no marks at all."""
    start: re.Pattern[str] | None
    """The start of a mark at the end of the text; None where each mark is one character."""
    longest: int
    """Characters in the longest start of a mark."""

    def first(self, text: str, at: int) -> tuple[int, str]:
        """Where the first of the marks starts, and which it is; (end of the text, "") for none."""
        found = None if self.whole is None else self.whole.search(text, at)
        return (len(text), "") if found is None else (found.start(), found.group())

    def partial(self, text: str, at: int) -> int:
        """Where the longest end of the text starts that is a proper prefix of a mark."""
        if self.start is None:
            return len(text)
        found = self.start.search(text, max(at, len(text) - self.longest))
        return len(text) if found is None else found.start()


@lru_cache(maxsize=512)
def _marks(markers: tuple[str, ...]) -> _Marks:
    """The patterns of marks, of which there are as many as formats have places for them."""
    by_length = sorted(set(markers), key=len, reverse=True)
    starts = {mark[:end] for mark in markers for end in range(1, len(mark))}
    return _Marks(
        re.compile("|".join(map(re.escape, by_length))) if markers else None,
        re.compile(f"(?:{_alternatives(starts)})\\Z") if starts else None,
        max(map(len, markers), default=1) - 1,
    )


def _alternatives(starts: set[str]) -> str:
    """A pattern of texts, of which each shorter one that begins a longer one is among them too."""

    def following(before: str) -> str:
        firsts = sorted(text[-1] for text in starts if text[:-1] == before)
        branches = [re.escape(first) + rest(before + first) for first in firsts]
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    def rest(before: str) -> str:
        longer = any(text[:-1] == before for text in starts)
        return f"(?:{following(before)})?" if longer else ""

    return following("")
