"""What was taken out of a request, to be put back into its answer."""

from __future__ import annotations

import re

from headrace.gateway.guards.guard import Match


class Originals:
    """Of one request, and gone with it. Each original has a mark of its own: [EMAIL_1], [EMAIL_2].

    It is also a finder: it finds the marks, and what stands in their place is the original.
    """

    look_back_chars = 0

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], str] = {}
        self._by_mark: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def __bool__(self) -> bool:
        return bool(self._by_mark)

    def __repr__(self) -> str:
        return f"<{len(self._by_mark)} originals>"

    def mark(self, replacement: str, original: str) -> str:
        """In place of an original; the same one for the same."""
        found = self._marks.get((replacement, original))
        if found is None:
            begin = replacement.removesuffix("]")
            end = "]" if replacement.endswith("]") else ""
            found = f"{begin}_{len(self._by_mark) + 1}{end}"
            self._marks[replacement, original] = found
            self._by_mark[found] = original
            self._pattern = None
        return found

    @property
    def window_chars(self) -> int:
        """The longest mark."""
        return max(map(len, self._by_mark), default=1)

    def find(self, text: str, start: int) -> list[Match]:
        """The marks. A plain list of words is looked for in linear time by Python's `re` too."""
        if not self._by_mark:
            return []
        if self._pattern is None:
            words = sorted(self._by_mark, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, words)))
        return [
            Match(one.start(), one.end(), self._by_mark[one[0]], "restored")
            for one in self._pattern.finditer(text, start)
        ]
