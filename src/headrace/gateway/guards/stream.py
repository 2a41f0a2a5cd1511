"""Checks of a stream by guardrails: what is sent on, and when.

Finders check a window and release the text behind it. A guardrail that needs the whole answer and
may block or change it holds all of it back until its end; one that only watches holds back nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.gateway.guards.action import Acted, GuardBlockedError
from headrace.gateway.guards.check_text import check_text
from headrace.gateway.guards.guard import Guard, Subject
from headrace.gateway.guards.stream_pieces import Channel, Growth, Piece, Pieces
from headrace.gateway.guards.text_span import TextSpan
from headrace.gateway.guards.window import Window

# Of an answer whose end is waited for, or that is only watched.
_MOST_CHARS = 16 * 2**20


class _Stage(Protocol):
    def feed(self, pieces: list[Piece]) -> list[Piece]: ...


class StreamGuards:
    """The guardrails of one stream. subject: the answer, without texts yet. holds_all: whether
    nothing is sent before the end."""

    def __init__(
        self, guards: Sequence[Guard], subject: Subject, on_acted: Callable[[Acted], None]
    ) -> None:
        self._pieces = Pieces(
            subject.dialect, hides_logprobs=any(one.holds_texts for one in guards)
        )
        self._stages = [_stage(guard, subject, on_acted) for guard in guards]
        self.holds_all = any(isinstance(stage, _Whole) and stage.holds for stage in self._stages)

    def feed(self, data: bytes) -> bytes:
        """The bytes to send on now. Raises GuardBlockedError."""
        out = bytearray()
        for piece in self._pieces.feed(data):
            pieces = [piece]
            try:
                for stage in self._stages:
                    pieces = stage.feed(pieces)
            except GuardBlockedError as error:
                error.passed = bytes(out)
                raise
            for one in pieces:
                out += self._pieces.written(one)
        return bytes(out)

    async def end(self) -> bytes:
        """The rest. Raises GuardBlockedError."""
        pieces = self._pieces.end()
        for stage in self._stages:
            pieces = stage.feed(pieces)
            if isinstance(stage, Window):
                pieces += stage.end()
            elif isinstance(stage, _Whole):
                pieces += await stage.end()
        return b"".join(map(self._pieces.written, pieces))


def _stage(guard: Guard, subject: Subject, on_acted: Callable[[Acted], None]) -> _Stage:
    if guard.finder is not None:
        return Window(guard, on_acted)
    if guard.tools is not None:
        return _Tools(guard, on_acted)
    return _Whole(guard, subject, on_acted)


class _Tools:
    """Names of called tools come whole and before their arguments: nothing has to wait."""

    def __init__(self, guard: Guard, on_acted: Callable[[Acted], None]) -> None:
        self._guard = guard
        self._on_acted = on_acted

    def feed(self, pieces: list[Piece]) -> list[Piece]:
        guard = self._guard
        assert guard.tools is not None
        for piece in pieces:
            if piece.tools and (reason := guard.tools(piece.tools)):
                if guard.action == "block":
                    raise GuardBlockedError(guard, reason)
                self._on_acted(Acted(guard.name, guard.action, reason))
        return pieces


class _Whole:
    """A guardrail that collects a stream's texts and runs at its end. holds: whether events wait
    for that."""

    def __init__(self, guard: Guard, subject: Subject, on_acted: Callable[[Acted], None]) -> None:
        self.holds = guard.action in ("block", "redact")
        self._guard = guard
        self._subject = subject
        self._on_acted = on_acted
        self._held: list[Piece] = []
        self._growths: dict[Channel, list[Growth]] = {}
        self._texts: dict[Channel, list[str]] = {}
        self._tools: dict[str, None] = {}
        self._chars = 0

    def feed(self, pieces: list[Piece]) -> list[Piece]:
        for piece in pieces:
            self._tools |= dict.fromkeys(piece.tools)
            for growth in piece.growths:
                if growth.whole and self._subject.dialect == "openai-responses":
                    continue  # it repeats what came piece by piece
                self._chars += len(growth.text)
                self._texts.setdefault(growth.channel, []).append(growth.text)
                self._growths.setdefault(growth.channel, []).append(growth)
        if self._chars > _MOST_CHARS:
            raise GuardBlockedError(self._guard, "the answer is too long to be checked")
        if not self.holds:
            return pieces
        self._held += pieces
        return []

    async def end(self) -> list[Piece]:
        passages = tuple(
            TextSpan(channel, "assistant", self._growths[channel][0].kind, "".join(texts),
                    channel[0] if isinstance(channel[0], int) else 0)
            for channel, texts in self._texts.items()
        )  # fmt: skip
        subject = self._subject._replace(passages=passages, tools=tuple(self._tools))
        passed = await check_text([self._guard], subject)
        for one in passed.acted:
            self._on_acted(one)
        if self.holds and passed.subject.passages != passages:
            changed = {
                before.path: (before.text, after.text)
                for before, after in zip(passages, passed.subject.passages, strict=True)
                if before.text != after.text
            }
            self._write(changed)
        held, self._held = self._held, []
        return held

    def _write(self, changed: dict[Channel, tuple[str, str]]) -> None:
        """Put all of a channel's new text into its first event."""
        texts = dict(changed.values())
        seen: set[Channel] = set()
        for piece in self._held:
            for growth in piece.growths:
                if growth.whole and growth.channel not in self._growths:
                    text = texts.get(growth.text, growth.text)
                elif growth.channel in changed:
                    text = "" if growth.channel in seen else changed[growth.channel][1]
                    seen.add(growth.channel)
                else:
                    continue
                if text != growth.text:
                    growth.text = text
                    piece.changed.add(growth.path)
