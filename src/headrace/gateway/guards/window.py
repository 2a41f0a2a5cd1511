"""Texts of a stream looked at while they pass: what may yet be part of a match is held back.

A channel is let through up to where no match can begin any more that is not seen whole. So whatever
the cuts between events are, what goes on is what would go on if the text came in one piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.gateway.guards.blocked import Acted, GuardBlockedError
from headrace.gateway.guards.guard import Guard, Match
from headrace.gateway.guards.replace import fitting, replaced_text, summary
from headrace.gateway.guards.stream_pieces import Channel, Growth, Piece

# A match that is still growing after so much is the whole rest of an answer, or an attack.
_MOST_HELD_CHARS = 65_536
_LOOKS_PER_WINDOW = 8


class _Growing:
    """One channel. text: from `base` on, of which what is below `cleared` has been decided.

    matches: those in what is decided, that some event has not gone out with yet.
    """

    __slots__ = ("base", "cleared", "ended", "matches", "text", "total")

    def __init__(self) -> None:
        self.text = ""
        self.base = 0
        self.cleared = 0
        self.total = 0
        self.ended = False
        self.matches: list[Match] = []


class Window:
    """One guardrail with a finder at one stream. on_acted: told once, when it first finds."""

    def __init__(self, guard: Guard, on_acted: Callable[[Acted], None]) -> None:
        assert guard.finder is not None
        self._guard = guard
        self._finder = guard.finder
        self._on_acted = on_acted
        self._has_acted = False
        self._holds = guard.action in ("block", "redact")
        # Each look is at a whole window: one for every few words, not for every token.
        self._step_chars = max(1, guard.finder.window_chars // _LOOKS_PER_WINDOW)
        self._channels: dict[Channel, _Growing] = {}
        self._waiting: deque[tuple[Piece, list[tuple[Growth, _Growing, int]]]] = deque()

    def feed(self, pieces: list[Piece]) -> list[Piece]:
        """Those that go on now. Raises GuardBlockedError."""
        for piece in pieces:
            spans: list[tuple[Growth, _Growing, int]] = []
            touched: dict[int, _Growing] = {}
            for growth in piece.growths:
                channel = _Growing() if growth.whole else self._channel(growth.channel)
                spans.append((growth, channel, channel.total))
                channel.text += growth.text
                channel.total += len(growth.text)
                channel.ended = channel.ended or growth.whole
                touched[id(channel)] = channel
            for ended in piece.ends:
                touched |= {id(one): one for one in self._end(ended)}
            for channel in touched.values():
                self._decide(channel)
            self._waiting.append((piece, spans))
        return self._released()

    def end(self) -> list[Piece]:
        """Nothing more comes. Raises GuardBlockedError."""
        for channel in self._channels.values():
            channel.ended = True
            self._decide(channel)
        return self._released()

    def _channel(self, name: Channel) -> _Growing:
        found = self._channels.get(name)
        if found is None:
            found = self._channels[name] = _Growing()
        return found

    def _end(self, begins: Channel) -> list[_Growing]:
        """A text of the same name that comes later is another one."""
        names = [one for one in self._channels if one[: len(begins)] == begins]
        ended = [self._channels.pop(one) for one in names]
        for one in ended:
            one.ended = True
        return ended

    def _decide(self, channel: _Growing) -> None:
        boundary = channel.total
        if not channel.ended:
            boundary -= self._finder.window_chars
        if boundary < channel.cleared + self._step_chars and not channel.ended:
            return
        base = channel.base
        decided: list[Match] = []
        cleared = max(boundary, channel.cleared)
        for one in self._finder.find(channel.text, channel.cleared - base):
            match = one._replace(start=one.start + base, end=one.end + base)
            if match.start >= boundary and not channel.ended:
                break
            if match.end == channel.total and not channel.ended:  # it may go on
                cleared = match.start
                break
            decided.append(match)
            cleared = max(cleared, match.end)
        if decided:
            self._act(decided)
            if self._guard.action == "redact":
                channel.matches += decided
        channel.cleared = cleared
        if channel.total - cleared > _MOST_HELD_CHARS:
            raise GuardBlockedError(self._guard, "a match has no end")
        keep = cleared - self._finder.look_back_chars - base
        if keep > 0:
            channel.text = channel.text[keep:]
            channel.base += keep

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
            if self._holds and any(
                channel.cleared < start + len(growth.text) for growth, channel, start in spans
            ):
                break
            self._waiting.popleft()
            for growth, channel, start in spans:
                if channel.matches:
                    _replace(piece, growth, channel, start)
            released.append(piece)
        return released


def _replace(piece: Piece, growth: Growth, channel: _Growing, start: int) -> None:
    text = replaced_text(growth.text, fitting(channel.matches, growth.kind), start)
    end = start + len(growth.text)
    if text != growth.text:
        growth.text = text
        piece.changed.add(growth.path)
    # Events go out in order, so nothing that ends before this one's end is needed again.
    channel.matches = [one for one in channel.matches if one.end > end]
