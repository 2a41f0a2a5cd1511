"""Events for a client of this dialect, as the API's own clients expect them.

Blocks follow one another, which the API keeps and some clients rely on: a tool call that grows
beside another waits until that one has ended. A tool call begins with its second event and not its
first, because its id has to hold its signature and other vendors tell calls whole.

The reason and the usage are one event of this dialect, so they go out at the end of the stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.anthropic.reply.failures import error_object
from headrace.protocol.dialects.anthropic.reply.finish import kept_fields, write_finish
from headrace.protocol.dialects.anthropic.reply.usage import usage_at_start, write_usage
from headrace.protocol.dialects.anthropic.reply.write_reply import citations, reply_block, tool_use
from headrace.protocol.dialects.anthropic.signatures import write_signature
from headrace.protocol.dialects.anthropic.values import encoded, mapping
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Signature, Thinking
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import one_line

PING = b'event: ping\ndata: {"type": "ping"}\n\n'

MAX_WAITING_CHARACTERS = 64 * 2**20
"""Of tool calls that wait for others to end. Each counts as much as it takes beside its text."""

_CALL_CHARACTERS = 1000
_PIECE_CHARACTERS = 64

# Names of the delta and of its piece, by the kind of part.
_DELTAS = {
    "text": ("text_delta", "text"),
    "refusal": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}
# Fields of a message that come with its last event and not within `delta`.
_BESIDE_DELTA = ("context_management",)


class _Block:
    """A block of the answer. index: that of its first event, None before that."""

    def __init__(self, began: PartStart) -> None:
        self.began = began
        self.index: int | None = None
        self.waiting: list[str] = []
        self.signature: Signature | None = None
        self.ended = False
        self.head = b""

    def begin(self, index: int) -> bytes:
        """Its content_block_start."""
        self.index = index
        delta, field = _DELTAS[self.began.kind]
        self.head = (
            'event: content_block_delta\ndata: {"type":"content_block_delta","index":'
            f'{index},"delta":{{"type":"{delta}","{field}":'
        ).encode()
        return _start(index, self._empty())

    def _empty(self) -> dict[str, Any]:
        began = self.began
        if began.kind == "tool_call":
            return tool_use(began.id, began.name, self.signature, began.extra)
        if began.kind == "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "text", "text": ""}

    def grow(self, piece: str) -> bytes:
        """The delta that adds `piece`."""
        return self.head + one_line(msgspec.json.encode(piece)) + b"}}\n\n"


class AnthropicStreamWriter:
    """A writer of one answer's events, given in order."""

    def __init__(self) -> None:
        self._over = False
        self._next_index = 0
        self._blocks: dict[int, _Block] = {}
        self._finished: ChoiceEnd | None = None
        self._usage: TokenUsage | None = None
        self._service_tier: str | None = None
        self._with_tools = False
        self._waiting_characters = 0

    def write(self, event: Event) -> bytes:
        """The bytes an event becomes; b"" for those that the dialect has no words for.

        Raises AnswerTooLongError.
        """
        if self._over:
            return b""
        if isinstance(event, PartDelta):
            return self._grow(event) if event.choice == 0 else b""
        if isinstance(event, ReplyStart):
            return self._begin(event)
        if isinstance(event, ReplyFailure):
            return self._fail(event.failure)
        if isinstance(event, ReplyEnd):
            return self._end()
        if isinstance(event, ReplyUsage):
            self._usage, self._service_tier = event.usage, event.service_tier
            return b""
        if event.choice != 0:
            return b""
        if isinstance(event, ChoiceEnd):
            self._finished = event
            return b""
        if isinstance(event, CompletePart):
            return self._complete(event)
        if isinstance(event, PartStart):
            return self._begin_part(event)
        return self._end_part(event)

    def keep_alive(self) -> bytes:
        """The API's own."""
        return b"" if self._over else PING

    def _begin(self, event: ReplyStart) -> bytes:
        self._usage = event.usage
        message: dict[str, Any] = {
            "id": event.id,
            "type": "message",
            "role": "assistant",
            "model": event.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(event.usage, None, usage_at_start(event.extra)),
        }
        return _event("message_start", {"message": message})

    def _begin_part(self, event: PartStart) -> bytes:
        block = self._blocks[event.part] = _Block(event)
        if event.kind == "tool_call":
            self._with_tools = True
            self._waiting_characters += _CALL_CHARACTERS
            self._limit()
            return b""
        return block.begin(self._take_index())

    def _grow(self, event: PartDelta) -> bytes:
        block = self._blocks.get(event.part)
        if block is None:
            return b""
        written = b""
        if block.index is None:
            current = next(iter(self._blocks.values())) is block
            if not (current and block.waiting and event.text):
                self._wait(block, event.text)
                return b""
            written = block.begin(self._take_index()) + self._flush(block)
        elif event.extra or event.citations:
            for citation in citations(event.extra, event.citations):
                delta = {"type": "citations_delta", "citation": citation}
                written += _delta(block.index, delta)
        return written + block.grow(event.text) if event.text else written

    def _wait(self, block: _Block, piece: str) -> None:
        if piece:
            block.waiting.append(piece)
            self._waiting_characters += len(piece) + _PIECE_CHARACTERS
        self._limit()

    def _limit(self) -> None:
        if self._waiting_characters > MAX_WAITING_CHARACTERS:
            raise AnswerTooLongError(
                f"parallel tool calls exceed {MAX_WAITING_CHARACTERS} characters"
            )

    def _flush(self, block: _Block) -> bytes:
        piece = "".join(block.waiting)
        self._waiting_characters -= len(piece) + _PIECE_CHARACTERS * len(block.waiting)
        block.waiting.clear()
        return block.grow(piece) if piece else b""

    def _end_part(self, event: PartEnd) -> bytes:
        block = self._blocks.get(event.part)
        if block is None:
            return b""
        block.ended = True
        block.signature = event.signature
        written = []
        # Those that waited for this one come after it, up to the first that still grows.
        for part, first in list(self._blocks.items()):
            if not first.ended:
                if len(first.waiting) > 1:
                    written += [first.begin(self._take_index()), self._flush(first)]
                break
            written.append(self._end_block(first))
            del self._blocks[part]
        return b"".join(written)

    def _end_block(self, block: _Block) -> bytes:
        written = b""
        if block.index is None:
            written = block.begin(self._take_index()) + self._flush(block)
        if block.began.kind == "tool_call":
            self._waiting_characters -= _CALL_CHARACTERS
        index = block.index or 0
        if block.began.kind == "thinking":
            thought = Thinking(
                text="",
                signature=block.signature,
                summary=block.began.summary,
                id=block.began.id or None,
            )
            signature = write_signature(thought)
            if signature:
                delta = {"type": "signature_delta", "signature": signature}
                written += _delta(index, delta)
        return written + _stop(index)

    def _complete(self, event: CompletePart) -> bytes:
        whole = reply_block(event.value)
        if whole is None:
            return b""
        self._with_tools = self._with_tools or whole["type"] == "tool_use"
        index = self._take_index()
        start, deltas = _opened(whole)
        pieces = [_start(index, start)]
        pieces += [_delta(index, delta) for delta in deltas]
        pieces.append(_stop(index))
        return b"".join(pieces)

    def _end(self) -> bytes:
        self._over = True
        finished = self._finished
        extra = finished.extra if finished else {}
        stop_sequence = finished.stop_sequence if finished else None
        kept = kept_fields(extra)
        usage = write_usage(self._usage, self._service_tier, mapping(kept.pop("usage", None)))
        beside = {name: kept.pop(name) for name in _BESIDE_DELTA if name in kept}
        reason = write_finish(
            finished.reason if finished else None,
            stop_sequence,
            extra,
            with_tools=self._with_tools,
        )
        delta = {"stop_reason": reason, "stop_sequence": stop_sequence} | kept
        last = _event("message_delta", {"delta": delta, "usage": usage} | beside)
        return last + _event("message_stop", {})

    def _fail(self, failure: Failure) -> bytes:
        self._over = True
        self._blocks.clear()
        return b"event: error\ndata: " + one_line(encoded(error_object(failure))) + b"\n\n"

    def _take_index(self) -> int:
        self._next_index += 1
        return self._next_index - 1


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole block as the API would begin it, and the deltas that make it whole."""
    kind = block["type"]
    if kind == "text":
        deltas = [
            {"type": "citations_delta", "citation": citation}
            for citation in block.get("citations", ())
        ]
        deltas.append({"type": "text_delta", "text": block["text"]})
        return {"type": "text", "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        if block["signature"]:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if kind.endswith("tool_use") and "input" in block:
        written = encoded(block["input"]).decode()
        return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    return block, []


def _start(index: int, block: dict[str, Any]) -> bytes:
    return _event("content_block_start", {"index": index, "content_block": block})


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return _event("content_block_delta", {"index": index, "delta": delta})


def _stop(index: int) -> bytes:
    return _event("content_block_stop", {"index": index})


def _event(name: str, fields: dict[str, Any]) -> bytes:
    data = one_line(encoded({"type": name} | fields))
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
