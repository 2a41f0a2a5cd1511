"""Checks of a stream's texts on the way: what may yet be part of a match is held back.

A channel is released up to where no match can begin that is not complete yet. The result is
therefore the same as for the whole text, however the events are cut.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.growing import Growing, GrowingText
from headrace.gateway.guards.growing_arguments import GrowingArguments
from headrace.gateway.guards.guard import Guard, Match
from headrace.gateway.guards.replace import merged, replaced_text, summary
from headrace.gateway.guards.stream_pieces import Channel, Growth, Piece

# A match that is still growing after so much more than a window is the whole rest of an answer, or
# an attack.
_MOST_HELD_CHARS = 65_536
_WINDOWS = 2


class _Channel:
    """The text of one channel of a stream. matches: those in decided text that no sent event
    contains yet; in order and without overlaps."""

    __slots__ = ("matches", "text")

    def __init__(self, text: GrowingText) -> None:
        self.text = text
        self.matches: deque[Match] = deque()

    def add(self, decided: list[Match]) -> None:
        """Add decided matches; one of them may overlap the last ones before."""
        last: list[Match] = []
        while self.matches and self.matches[-1].end > decided[0].start:
            last.append(self.matches.pop())
        self.matches += merged([*last, *decided])


class Window:
    """One guardrail with a finder on one stream. on_acted: called once, at the first match."""

    def __init__(self, guard: Guard, on_acted: Callable[[Acted], None]) -> None:
        assert guard.finder is not None
        self._guard = guard
        self._finder = guard.finder
        self._on_acted = on_acted
        self._has_acted = False
        self._holds = guard.action in ("block", "redact")
        self._most_held_chars = _MOST_HELD_CHARS + _WINDOWS * guard.finder.window_chars
        # By what ends them.
        self._channels: dict[Channel, dict[Channel, _Channel]] = {}
        self._waiting: deque[tuple[Piece, list[tuple[Growth, _Channel, int]]]] = deque()
        # How many growths of the first that waits need not be waited for any more.
        self._cleared = 0

    def feed(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces to send on now. Raises GuardBlockedError."""
        for piece in pieces:
            spans: list[tuple[Growth, _Channel, int]] = []
            touched: dict[int, _Channel] = {}
            for growth in piece.growths:
                channel = self._new(growth) if growth.whole else self._channel(growth)
                spans.append((growth, channel, channel.text.total))
                channel.text.grow(growth.text)
                if growth.whole:
                    channel.text.end()
                touched[id(channel)] = channel
            for ended in piece.ends:
                touched |= {id(one): one for one in self._end(ended)}
            for channel in touched.values():
                self._decide(channel)
            self._waiting.append((piece, spans))
        return self._released()

    def end(self) -> list[Piece]:
        """The remaining pieces, at the end of the stream. Raises GuardBlockedError."""
        for ended in list(self._channels):
            for channel in self._end(ended):
                self._decide(channel)
        return self._released()

    def _channel(self, growth: Growth) -> _Channel:
        beside = self._channels.setdefault(growth.until, {})
        found = beside.get(growth.channel)
        if found is None:
            found = beside[growth.channel] = self._new(growth)
        return found

    def _new(self, growth: Growth) -> _Channel:
        if growth.kind == "arguments":
            return _Channel(GrowingArguments(self._finder))
        return _Channel(Growing(self._finder))

    def _end(self, until: Channel) -> list[_Channel]:
        """A text of the same name that comes later is another one."""
        ended = list(self._channels.pop(until, {}).values())
        for one in ended:
            one.text.end()
        return ended

    def _decide(self, channel: _Channel) -> None:
        decided = channel.text.found()
        if decided:
            self._act(decided)
            if self._guard.action == "redact":
                channel.add(decided)
        if channel.text.held_chars > self._most_held_chars:
            raise GuardBlockedError(self._guard, "a match has no end")

    def _act(self, matches: list[Match]) -> None:
        guard = self._guard
        reason = f"found {summary(matches)}"
        if guard.action == "block":
            raise GuardBlockedError(guard, reason)
        if not self._has_acted:
            self._has_acted = True
            self._on_acted(Acted(guard.name, guard.action, reason))

    def _released(self) -> list[Piece]:
        released: list[Piece] = []
        while self._waiting:
            piece, spans = self._waiting[0]
            if self._holds and not self._is_cleared(spans):
                break
            self._waiting.popleft()
            self._cleared = 0
            for growth, channel, start in spans:
                if channel.matches:
                    _replace(piece, growth, channel, start)
            released.append(piece)
        return released

    def _is_cleared(self, spans: list[tuple[Growth, _Channel, int]]) -> bool:
        while self._cleared < len(spans):
            growth, channel, start = spans[self._cleared]
            if channel.text.cleared < start + len(growth.text):
                return False
            self._cleared += 1
        return True


def _replace(piece: Piece, growth: Growth, channel: _Channel, start: int) -> None:
    end = start + len(growth.text)
    reaching = list(itertools.takewhile(lambda one: one.start < end, channel.matches))
    text = replaced_text(growth.text, reaching, start)
    if text != growth.text:
        growth.text = text
        piece.changed.add(growth.path)
    # Events go out in order, so nothing that ends before this one's end is needed again.
    while channel.matches and channel.matches[0].end <= end:
        channel.matches.popleft()
