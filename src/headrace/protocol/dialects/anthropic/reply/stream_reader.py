"""A provider's stream, from bytes to events.

Blocks that have no neutral form, hidden thoughts among them, are held until they are whole; of
other blocks a signature, citations and unused beginnings of `input` are. MAX_HELD_CHARACTERS bounds
all that is held. Usage is told at the end alone, but for what the start says of the input.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.reply.citations import read_citations
from headrace.protocol.dialects.anthropic.reply.failures import error_failure
from headrace.protocol.dialects.anthropic.reply.finish import answer_extra, read_finish
from headrace.protocol.dialects.anthropic.reply.read_reply import (
    MESSAGE,
    own_signature,
    read_part,
    text_extra,
    tool_call,
)
from headrace.protocol.dialects.anthropic.reply.usage import (
    is_billed,
    merged_usage,
    read_tier,
    read_usage,
    start_extra,
    unread_usage,
)
from headrace.protocol.dialects.anthropic.values import (
    arguments_of,
    decoded,
    input_of,
    mapping,
    rest,
    text,
)
from headrace.protocol.neutral.arguments import GrowingArguments
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
from headrace.protocol.sse import (
    DONE_DATA,
    MAX_EVENT_BYTES,
    SSEReader,
    StreamTooLargeError,
)

MAX_HELD_CHARACTERS = MAX_EVENT_BYTES

# The field of a delta that holds its piece, and the kind of part that grows by it.
_GROWTH: dict[str, tuple[str, Kind]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "tool_call"),
}
_PING = "ping"
_HELD: dict[str, Kind] = {"citations_delta": "text", "signature_delta": "thinking"}
_DELTA_EVENT = frozenset({"type", "delta", "usage"})


class _Block:
    """The open block. kind: None for one that is held until it is complete."""

    def __init__(self, index: object, part: int, kind: Kind | None, start: dict[str, Any]) -> None:
        self.index = index
        self.part = part
        self.kind = kind
        self.start = start
        self.grown = False
        self.arguments = GrowingArguments()
        self.signature = [text(start.get("signature"))]
        self.citations: list[Any] = []
        self.pieces: dict[str, list[str]] = {}
        self.held = 0


class AnthropicStreamReader:
    """A `StreamReader` for Anthropic's streams: give it bytes with `feed`, and call `end` after the
    last. has_media, has_data: as in PartialContentReader; tools_used: as in ToolUseReader."""

    has_media = False  # a picture comes in one piece

    def __init__(self) -> None:
        self._sse = SSEReader()
        self._began = False
        self._over = False
        self.has_data = self.tools_used = False
        self._id = ""
        self._parts = 0
        self._last_index = 0
        self._repeated_after: int | None = None
        self._block: _Block | None = None
        self._first_usage: dict[str, Any] = {}
        self._start_extra: dict[str, Any] = {}
        self._last_usage: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self._reason: Any = None
        self._stop_sequence: Any = None
        self._held_fields = 0
        self._events: list[Event] = []

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`. Damage is a ReplyFailure event, never an exception."""
        if self._over:
            return []
        events = self._fresh()
        try:
            for event in self._sse.feed(piece):
                self._take(event.data, event.event)
                if self._over:
                    break
        except (StreamTooLargeError, DamagedReplyError) as error:
            self._fail("damaged", str(error))
        except RecursionError:
            self._fail("damaged", "an event of the stream is nested too deeply")
        return events

    def end(self) -> list[Event]:
        """After the last byte: [] after a ReplyEnd or ReplyFailure, else a ReplyFailure."""
        if self._over:
            return []
        events = self._fresh()
        self._fail("network", "the stream ended before its message_stop")
        return events

    def _fresh(self) -> list[Event]:
        """The list that events go into until the next call."""
        self._events = []
        return self._events

    def _take(self, data: str, name: str) -> None:
        if data == DONE_DATA:
            return
        try:
            value = decoded(data)
        except ValueError as error:
            raise DamagedReplyError(f"an event of the stream is not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise DamagedReplyError("an event of the stream is not an object")
        kind = value.get("type", name)
        if kind == "error":
            self._fail_with(error_failure(value))
        elif kind == "message_start":
            self._begin(value)
        elif kind in ("content_block_delta", "content_block_start", "content_block_stop"):
            if not self._began:
                raise DamagedReplyError("the stream has content before its message_start")
            if kind == "content_block_delta":
                self._grow(value, len(data))
            elif kind == "content_block_start":
                self._open(value)
            elif self._block is not None and self._block.index == value.get("index"):
                self._close(self._block)
        elif kind == "message_delta":
            self._held_fields += len(data)
            self._limit(self._held_fields)
            self._take_delta(value)
        elif kind == "message_stop":
            self._stop()
        elif kind != _PING:
            self.has_data = True

    def _begin(self, value: dict[str, Any]) -> None:
        message = mapping(value.get("message"))
        if self._began:
            if text(message.get("id")) != self._id:
                raise DamagedReplyError("the stream has two message_start events")
            # Some servers repeat it. After content the answer may go on, but not begin again.
            if self._parts:
                self._repeated_after = self._last_index
            return
        self._began = True
        self._id = text(message.get("id"))
        self._first_usage = mapping(message.get("usage"))
        self._start_extra = start_extra(self._first_usage)
        self._fields = rest(message, MESSAGE)
        self._events.append(
            ReplyStart(
                id=text(message.get("id")),
                model=text(message.get("model")),
                usage=read_usage(self._first_usage),
                service_tier=read_tier(self._first_usage),
                extra=self._start_extra,
            )
        )

    def _open(self, value: dict[str, Any]) -> None:
        if self._block is not None:
            self._close(self._block)
        start = value.get("content_block")
        if not isinstance(start, dict) or not text(start.get("type")):
            raise DamagedReplyError("a content_block_start of the stream has no block")
        index = value.get("index")
        if isinstance(index, int):
            if self._repeated_after is not None and index <= self._repeated_after:
                raise DamagedReplyError("the stream begins its answer again")
            self._last_index = index
        kind: Kind | None = None
        piece = ""
        part = self._parts
        if start["type"] == "text":
            kind, piece = "text", text(start.get("text"))
            began = PartStart(choice=0, part=part, kind=kind)
        elif start["type"] == "thinking":
            kind, piece = "thinking", text(start.get("thinking"))
            began = PartStart(choice=0, part=part, kind=kind)
        elif start["type"] == "tool_use":
            kind, call = "tool_call", tool_call(start)
            began = PartStart(
                choice=0, part=part, kind=kind, id=call.id, name=call.name, extra=call.extra
            )
        self._parts += 1
        self._block = block = _Block(index, part, kind, start)
        if kind is None:
            self.has_data = True
            self.tools_used = self.tools_used or is_billed(start)
        else:
            self._events.append(began)
            self._give(block, piece)

    def _give(self, block: _Block, piece: str) -> None:
        if piece:
            block.grown = True
        if block.kind == "tool_call":
            piece = block.arguments.take(piece)
        if piece:
            self._events.append(PartDelta(choice=0, part=block.part, text=piece))

    def _grow(self, value: dict[str, Any], characters: int) -> None:
        block = self._block
        if block is None or block.index != value.get("index"):
            raise DamagedReplyError("a content_block_delta of the stream belongs to no open block")
        delta = mapping(value.get("delta"))
        kind = text(delta.get("type"))
        if kind in _GROWTH and block.kind is not None:
            field, grows = _GROWTH[kind]
            if block.kind != grows:
                raise DamagedReplyError(f"a {kind} of the stream belongs to another kind of block")
            self._give(block, text(delta.get(field)))
            return
        self.has_data = True
        block.held += characters
        self._limit(block.held)
        if block.kind is None:
            _hold(block, delta)
        elif _HELD.get(kind, block.kind) != block.kind:
            raise DamagedReplyError(f"a {kind} of the stream belongs to another kind of block")
        elif kind == "signature_delta":
            block.signature.append(text(delta.get("signature")))
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))

    def _close(self, block: _Block) -> None:
        self._block = None
        if block.kind is None:
            self._events.append(
                CompletePart(choice=0, part=block.part, value=read_part(_whole(block)))
            )
            return
        extra: dict[str, Any] = {}
        if block.kind == "text":
            extra = text_extra(block.start)
            if block.citations:
                extra["citations"] = [*(extra.get("citations") or ()), *block.citations]
        elif block.kind == "tool_call":
            if not block.grown:
                # Some servers tell all of the input at the start.
                self._give(block, arguments_of(block.start.get("input")))
            if rest := block.arguments.end():
                self._events.append(PartDelta(choice=0, part=block.part, text=rest))
        if extra:
            listed = extra.get("citations")
            citations = read_citations(listed) if isinstance(listed, list) else ()
            self._events.append(
                PartDelta(choice=0, part=block.part, text="", citations=citations, extra=extra)
            )
        signature = own_signature("".join(block.signature)) if block.kind == "thinking" else None
        self._events.append(PartEnd(choice=0, part=block.part, signature=signature))

    def _take_delta(self, value: dict[str, Any]) -> None:
        delta = mapping(value.get("delta"))
        self._reason = delta.get("stop_reason") or self._reason
        self._stop_sequence = delta.get("stop_sequence") or self._stop_sequence
        self._fields |= rest(delta, MESSAGE) | rest(value, _DELTA_EVENT)
        self._last_usage = self._last_usage | mapping(value.get("usage"))

    def _stop(self) -> None:
        if not self._began:
            raise DamagedReplyError("the stream has a message_stop before its message_start")
        if self._block is not None:
            self._close(self._block)
        usage = merged_usage(self._first_usage, self._last_usage)
        reason = read_finish(self._reason)
        if reason is not None:
            fields = self._fields | {"usage": unread_usage(usage, self._start_extra)}
            self._events.append(
                ChoiceEnd(
                    choice=0,
                    reason=reason,
                    stop_sequence=text(self._stop_sequence) or None,
                    extra=answer_extra(self._reason, self._stop_sequence, fields),
                )
            )
        self._count(usage)
        self._events.append(ReplyEnd())
        self._over = True

    def _count(self, usage: dict[str, Any]) -> None:
        counted = read_usage(usage)
        if counted is not None:
            self._events.append(ReplyUsage(usage=counted, service_tier=read_tier(usage)))

    def _limit(self, characters: int) -> None:
        if characters > MAX_HELD_CHARACTERS:
            raise DamagedReplyError(
                f"the stream has a block of more than {MAX_HELD_CHARACTERS} characters that "
                "would have to be held"
            )

    def _fail(self, kind: FailureKind, message: str) -> None:
        self._fail_with(Failure(kind=kind, message=message))

    def _fail_with(self, failure: Failure) -> None:
        self._over = True
        self._block = None
        if self._last_usage:
            # It was all answered, or nearly: what it took is known and has to be paid.
            self._count(merged_usage(self._first_usage, self._last_usage))
        if not failure.message:
            failure = Failure(kind=failure.kind, message="the stream ended in an error")
        self._events.append(ReplyFailure(failure))


def _hold(block: _Block, delta: dict[str, Any]) -> None:
    """A delta of a held block: its strings go on where the block's fields of that name end."""
    for key, value in delta.items():
        if key == "type" or value is None:
            continue
        if isinstance(value, str):
            block.pieces.setdefault(key, []).append(value)
        else:
            block.start[key] = value


def _whole(block: _Block) -> dict[str, Any]:
    """The held block with all its pieces."""
    whole = block.start
    for key, pieces in block.pieces.items():
        if key == "partial_json":
            if written := "".join(pieces):
                whole["input"] = decoded(bytes(input_of(written)))
        else:
            whole[key] = "".join((text(whole.get(key)), *pieces))
    return whole
