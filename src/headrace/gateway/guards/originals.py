"""Originals that were redacted in a request, to be put back into its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from headrace.gateway.guards.guard import Match
from headrace.gateway.guards.looking import Step, one_by_one


class Originals:
    """Redacted originals of one request, dropped with it. Each has a mark of its own: [EMAIL_1],
    [EMAIL_2].

    It is also a finder, which matches the marks and replaces them with the originals.
    """

    look_back_chars = 0

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], str] = {}
        self._by_mark: dict[str, str] = {}
        # What marks begin with, and how long they are: few, however many marks there are.
        self._heads: set[str] = set()
        self._lengths: set[int] = set()
        self._pattern: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._by_mark)

    def __repr__(self) -> str:
        return f"<{len(self._by_mark)} originals>"

    def mark(self, replacement: str, original: str) -> str:
        """The mark for an original; the same original gets the same mark."""
        found = self._marks.get((replacement, original))
        if found is None:
            begin = replacement.removesuffix("]")
            end = "]" if replacement.endswith("]") else ""
            found = f"{begin}_{len(self._by_mark) + 1}{end}"
            self._marks[replacement, original] = found
            self._by_mark[found] = original
            self._lengths.add(len(found))
            if begin not in self._heads:
                self._heads.add(begin)
                self._pattern = None
        return found

    @property
    def window_chars(self) -> int:
        """The longest mark."""
        return max(self._lengths, default=1)

    def find(self, text: str, start: int) -> list[Match]:
        """The marks; of those that begin at one place, the longest."""
        if not self._by_mark:
            return []
        if self._pattern is None:
            self._pattern = re.compile("|".join(re.escape(f"{one}_") for one in self._heads))
        lengths = sorted(self._lengths, reverse=True)
        found: list[Match] = []
        at = start
        while head := self._pattern.search(text, at):
            at = head.start()
            marks = (text[at : at + length] for length in lengths)
            mark = next((one for one in marks if one in self._by_mark), None)
            if mark is None:
                at += 1
            else:
                found.append(Match(at, at + len(mark), self._by_mark[mark], "restored"))
                at += len(mark)
        return found

    def find_each(self, texts: Iterable[str], step: Step) -> Iterator[list[Match]]:
        """See Finder."""
        return one_by_one(self.find, texts, step)

    def may_find(self, text: str) -> bool:
        """See Finder."""
        return bool(self._by_mark)
