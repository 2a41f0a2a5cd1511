"""Which positions a token sees: all before it, the last few, or those of its chunk."""

from __future__ import annotations

from typing import NamedTuple

from headrace.ops.kv import AttentionShape


class Visible(NamedTuple):
    """The positions that tokens of a layer see, their own included."""

    reach: int = 0
    """How many at most; 0 for all."""
    chunked: bool = False
    """Those from the last multiple of `reach` on, not the last `reach`."""

    def first(self, position: int) -> int:
        """The first that a token at `position` sees; it never falls as that grows."""
        if not self.reach:
            return 0
        if self.chunked:
            return position // self.reach * self.reach
        return max(0, position + 1 - self.reach)

    def span(self, start: int, tokens: int) -> int:
        """Positions that at least one of the tokens at [start, start + tokens) sees."""
        return start + tokens - self.first(start)

    def pairs(self, start: int, tokens: int) -> int:
        """Sum over those tokens of the positions that each sees."""
        return self._pairs_before(start + tokens) - self._pairs_before(start)

    def _pairs_before(self, end: int) -> int:
        if not self.reach:
            return _triangle(end)
        if self.chunked:
            chunks, rest = divmod(end, self.reach)
            return chunks * _triangle(self.reach) + _triangle(rest)
        whole = min(end, self.reach)  # tokens that still see everything before them
        return _triangle(whole) + (end - whole) * self.reach


def visible_of(shape: AttentionShape) -> Visible:
    """The positions that tokens of a layer with this attention see."""
    return Visible(shape.reach, bool(shape.chunk and not shape.window))


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
