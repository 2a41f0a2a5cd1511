"""The reader of streams of JSON, one object in each line (application/x-ndjson)."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.ollama.reply.failures import line_failure
from headrace.protocol.dialects.ollama.reply.read_reply import (
    Chunk,
    done_extra,
    finish,
    parts,
    read_chunk,
    read_done,
)
from headrace.protocol.dialects.ollama.reply.usage import read_usage
from headrace.protocol.dialects.ollama.timestamp import unix_s
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.part import Media, Text, Thinking, ToolCall
from headrace.protocol.sse import MAX_EVENT_BYTES


class LineReader:
    """A reader of lines: feed it bytes, and it returns the lines they complete, without line ends.

    The result does not depend on how the bytes are cut; empty lines are skipped. too_long: a line
    exceeded `max_line_bytes`; it and the rest are not read.
    """

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self.max_line_bytes = max_line_bytes
        self.too_long = False
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Lines completed by `piece`."""
        lines: list[bytes] = []
        start = 0
        while not self.too_long:
            end = piece.find(b"\n", start)
            self._rest += piece[start:] if end < 0 else piece[start:end]
            self.too_long = len(self._rest) > self.max_line_bytes
            if end < 0 or self.too_long:
                break
            lines += self.end()
            start = end + 1
        return lines

    def end(self) -> list[bytes]:
        """The last line, where no line end follows it."""
        rest = bytes(self._rest)
        self._rest.clear()
        return [rest] if rest.strip() else []


class OllamaStreamReader:
    """A reader of one answer. Tool calls come whole; thoughts and text a piece a line."""

    def __init__(self, max_line_bytes: int = MAX_EVENT_BYTES) -> None:
        self._lines = LineReader(max_line_bytes)
        self._has_begun = False
        self._is_over = False
        self._parts = 0
        self._calls = 0
        self._open: Kind | None = None
        # Tokens may come without text of their own, which then shows on a later line.
        self._logprobs: list[dict[str, Any]] = []

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        if self._is_over:
            return events
        for line in self._lines.feed(piece):
            self._take(line, events)
        if self._lines.too_long:
            limit = self._lines.max_line_bytes
            self._fail("damaged", f"a line of the stream exceeds {limit} bytes", events)
        return events

    def end(self) -> list[Event]:
        """After the last byte; a last line needs no line end."""
        events: list[Event] = []
        if self._is_over:
            return events
        for line in self._lines.end():
            self._take(line, events)
        self._fail("network", "the stream ended before its last line", events)
        return events

    def _take(self, line: bytes, events: list[Event]) -> None:
        if self._is_over:
            return
        try:
            self._take_chunk(read_chunk(line), line, events)
        except DamagedReplyError as error:
            self._fail("damaged", str(error), events)

    def _take_chunk(self, chunk: Chunk, line: bytes, events: list[Event]) -> None:
        if chunk.error is not None:
            self._is_over = True
            events.append(ReplyFailure(line_failure(chunk.error)))
            return
        found = list(parts(chunk.message, self._calls))
        done = read_done(line) if chunk.done else None
        if not self._has_begun:
            self._has_begun = True
            events.append(
                ReplyStart(
                    id="",
                    model=chunk.model or "",
                    created_s=unix_s(chunk.created_at),
                    extra=chunk.origin(),
                )
            )
        self._logprobs += chunk.logprobs or ()
        for part in found:
            self._take_part(part, events)
        if done is not None:
            self._finish(chunk, done, events)

    def _take_part(self, part: Text | Thinking | Media | ToolCall, events: list[Event]) -> None:
        if isinstance(part, Text):
            self._grow("text", part.text, events)
        elif isinstance(part, Thinking):
            self._grow("thinking", part.text, events)
        elif isinstance(part, Media):
            self._close(events)
            events.append(CompletePart(choice=0, part=self._parts, value=part))
            self._parts += 1
        else:
            self._close(events)
            self._calls += 1
            self._begin("tool_call", events, part.id, part.name)
            self._grow("tool_call", part.arguments, events)
            self._close(events)

    def _grow(self, kind: Kind, text: str, events: list[Event]) -> None:
        if self._open != kind:
            self._close(events)
            self._begin(kind, events)
        logprobs, self._logprobs = self._logprobs or None, []
        events.append(PartDelta(choice=0, part=self._parts - 1, text=text, logprobs=logprobs))

    def _begin(self, kind: Kind, events: list[Event], id: str = "", name: str = "") -> None:
        events.append(PartStart(choice=0, part=self._parts, kind=kind, id=id, name=name))
        self._open = kind
        self._parts += 1

    def _close(self, events: list[Event]) -> None:
        if self._open is not None:
            self._open = None
            events.append(PartEnd(choice=0, part=self._parts - 1))

    def _finish(self, chunk: Chunk, done: dict[str, Any], events: list[Event]) -> None:
        if self._logprobs and self._open is not None:
            self._grow(self._open, "", events)
        self._close(events)
        reason = finish(chunk.done_reason, self._calls > 0)
        events.append(ChoiceEnd(choice=0, reason=reason, extra=done_extra(done)))
        usage = read_usage(done)
        if usage is not None:
            events.append(ReplyUsage(usage=usage))
        events.append(ReplyEnd())
        self._is_over = True

    def _fail(self, kind: FailureKind, message: str, events: list[Event]) -> None:
        if not self._is_over:
            self._is_over = True
            events.append(ReplyFailure(Failure(kind=kind, message=message)))
