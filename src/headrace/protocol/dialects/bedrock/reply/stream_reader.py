"""An answer of ConverseStream as it comes, read.

Frames in order: messageStart; for each content block contentBlockStart (of tools and images alone),
contentBlockDelta, contentBlockStop; messageStop with the stop reason; metadata with the usage. No
frame marks the end. An answer has ended when both messageStop and metadata are there, or when the
stream ends after messageStop, then without usage. A stream that ends before messageStop was cut.
Frames with an exception may come at any place and end the stream.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headrace.protocol.aws.event_stream import EventStreamReader, Frame
from headrace.protocol.dialects.bedrock.reply.failures import stream_failure
from headrace.protocol.dialects.bedrock.reply.read_reply import (
    CITATIONS,
    MALFORMED,
    ending,
    from_base64,
    read_citations,
    read_media,
    read_tier,
    redacted,
)
from headrace.protocol.dialects.bedrock.reply.usage import as_list, read_usage
from headrace.protocol.dialects.bedrock.values import (
    DIALECT,
    NOT_JSON,
    SERVER_TOOL_USE,
    SIGNER,
    encoded,
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
from headrace.protocol.neutral.part import Opaque, Part, Signature

MAX_HELD_BYTES = 64 * 2**20
"""Of a part that is given whole (a picture, hidden thoughts), and of signatures and citations."""

_STOP_FIELDS = ("stopReason", "additionalModelResponseFields")
_METADATA_FIELDS = ("usage", "trace", "performanceConfig", "serviceTier")


class ConverseStreamReader:
    """A `StreamReader` of one answer."""

    def __init__(self, *, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._frames = EventStreamReader()
        self._events: list[Event] = []
        self._began = False
        self._over = False
        self._blocks = _Blocks(max_held_bytes)
        self._ending: dict[str, Any] = {}
        self._counted = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        for frame in self._frames.feed(piece):
            if self._over:
                break
            self._take(frame)
        if self._frames.damage is not None:
            self._fail("damaged", f"the event stream is damaged: {self._frames.damage}")
        events, self._events = self._events, []
        return events

    def end(self) -> list[Event]:
        """After the last byte."""
        if not self._over:
            if "stopReason" in self._ending:
                self._end()
            else:
                self._fail("network", "the stream ended before the answer did")
        events, self._events = self._events, []
        return events

    def _take(self, frame: Frame) -> None:
        kind = frame.text(":message-type")
        if kind == "exception":
            self._give_up(stream_failure(frame.text(":exception-type"), frame.payload))
        elif kind == "error":
            message = msgspec.json.encode({"message": frame.text(":error-message")})
            self._give_up(stream_failure(frame.text(":error-code"), message))
        elif frame.text(":event-type") in self._HANDLERS:
            try:
                self._take_event(frame.text(":event-type"), msgspec.json.decode(frame.payload))
            except (*NOT_JSON, DamagedReplyError) as error:
                self._fail("damaged", f"a {frame.text(':event-type')} event is damaged: {error}")

    def _take_event(self, name: str, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise DamagedReplyError("it is not an object")
        if not self._began:
            self._began = True
            self._events.append(ReplyStart(id="", model=""))
        if "stopReason" in self._ending and name != "metadata":
            return  # the answer is whole
        self._HANDLERS[name](self, fields)

    def _start(self, fields: dict[str, Any]) -> None:
        self._blocks.start(fields.get("contentBlockIndex"), fields.get("start"), self._events)

    def _delta(self, fields: dict[str, Any]) -> None:
        self._blocks.grow(fields.get("contentBlockIndex"), fields.get("delta"), self._events)

    def _stop(self, _fields: dict[str, Any]) -> None:
        self._blocks.close(self._events)

    def _message_stop(self, fields: dict[str, Any]) -> None:
        self._blocks.close(self._events)
        ending(fields)  # raises without a stop reason
        self._ending |= {name: fields.get(name) for name in _STOP_FIELDS}
        if self._counted:
            self._end()

    def _metadata(self, fields: dict[str, Any]) -> None:
        self._counted = True
        self._ending |= {name: fields.get(name) for name in _METADATA_FIELDS}
        if "stopReason" in self._ending:
            self._end()

    def _end(self) -> None:
        self._over = True
        reason = self._ending["stopReason"]
        malformed = reason in MALFORMED
        if not malformed:
            choice = ending(self._ending)
            assert choice.finish is not None
            self._events.append(
                ChoiceEnd(
                    choice=0,
                    reason=choice.finish,
                    stop_sequence=choice.stop_sequence,
                    extra=choice.extra,
                )
            )
        usage = read_usage(self._ending.get("usage"))
        if usage is not None:
            self._events.append(ReplyUsage(usage=usage, service_tier=read_tier(self._ending)))
        if malformed:
            message = f"the model's output was malformed (stopReason {reason})"
            self._events.append(ReplyFailure(Failure(kind="server", message=message, code=reason)))
        else:
            self._events.append(ReplyEnd())

    def _fail(self, kind: FailureKind, message: str) -> None:
        self._give_up(Failure(kind=kind, message=message))

    def _give_up(self, failure: Failure) -> None:
        if not self._over:
            self._over = True
            self._events.append(ReplyFailure(failure))

    _HANDLERS: ClassVar[dict[str, Callable[[ConverseStreamReader, dict[str, Any]], None]]] = {
        "messageStart": lambda _reader, _fields: None,
        "contentBlockStart": _start,
        "contentBlockDelta": _delta,
        "contentBlockStop": _stop,
        "messageStop": _message_stop,
        "metadata": _metadata,
    }


class _Blocks:
    """Content blocks one after the other; what has no neutral stream is held until it is whole.

    A part begins with the first text that is not empty, as an answer in one piece has none either.
    """

    def __init__(self, max_held_bytes: int) -> None:
        self._max_held_bytes = max_held_bytes
        self._held_bytes = 0
        self._index: Any = None
        self._next_part = 0
        self._open: Kind | None = None
        self._arguments = GrowingArguments()
        self._held: _Held | None = None
        self._signature: list[str] = []
        self._citations: list[Any] = []

    def start(self, index: Any, start: Any, events: list[Event]) -> None:
        """A contentBlockStart."""
        self.close(events)
        self._index = index
        if not isinstance(start, dict):
            return
        tool, result, image = (start.get(name) for name in ("toolUse", "toolResult", "image"))
        if isinstance(tool, dict):
            self._start_tool(tool, events)
        elif isinstance(result, dict):
            self._held = _Held("toolResult", result)
        elif isinstance(image, dict):
            self._held = _Held("image", image)

    def _start_tool(self, tool: dict[str, Any], events: list[Event]) -> None:
        if tool.get("type") == SERVER_TOOL_USE:
            self._held = _Held("toolUse", tool)
            return
        name, call_id = tool.get("name"), tool.get("toolUseId")
        if not isinstance(name, str) or not name or not isinstance(call_id, str):
            raise DamagedReplyError("a toolUse has no name or no id")
        self._begin("tool_call", events, call_id, name)

    def grow(self, index: Any, delta: Any, events: list[Event]) -> None:
        """A contentBlockDelta."""
        if index != self._index:
            self.close(events)
            self._index = index
        if not isinstance(delta, dict):
            raise DamagedReplyError("delta is not an object")
        text = delta.get("text")
        tool, thought = delta.get("toolUse"), delta.get("reasoningContent")
        if isinstance(text, str):
            self._grow_text("text", text, events)
        elif text is not None:
            raise DamagedReplyError("delta.text is not text")
        elif isinstance(tool, dict):
            self._grow_tool(tool.get("input"), events)
        elif isinstance(thought, dict):
            self._grow_thought(thought, events)
        elif "citation" in delta:
            self._hold(delta["citation"])
            self._citations.append(delta["citation"])
        elif self._held is not None and self._held.takes(delta):
            self._hold(delta)
            self._held.deltas.append(delta)

    def _grow_text(self, kind: Kind, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._open != kind:
            self._close_part(events)
            self._begin(kind, events)
        events.append(PartDelta(choice=0, part=self._next_part - 1, text=text))

    def _grow_tool(self, text: Any, events: list[Event]) -> None:
        if not isinstance(text, str):
            raise DamagedReplyError("delta.toolUse.input is not text")
        if self._held is not None and self._held.kind == "toolUse":
            self._hold(text)
            self._held.deltas.append(text)
        elif self._open != "tool_call":
            raise DamagedReplyError("a tool's input arrived before its name")
        elif piece := self._arguments.take(text):
            events.append(PartDelta(choice=0, part=self._next_part - 1, text=piece))

    def _grow_thought(self, thought: dict[str, Any], events: list[Event]) -> None:
        text, signature = thought.get("text"), thought.get("signature")
        if isinstance(text, str):
            self._grow_text("thinking", text, events)
        if isinstance(signature, str) and signature:
            if self._open != "thinking":
                self._close_part(events)
                self._begin("thinking", events)
            self._hold(signature)
            self._signature.append(signature)
        if "redactedContent" in thought:
            content = from_base64(thought["redactedContent"], "redactedContent")
            if self._held is None or self._held.kind != "redacted":
                self._close_part(events)
                self._held = _Held("redacted", {})
            self._hold(thought["redactedContent"])
            self._held.deltas.append(content)

    def _hold(self, value: Any) -> None:
        size = len(value) if isinstance(value, str) else len(encoded(value))
        self._held_bytes += size
        if self._held_bytes > self._max_held_bytes:
            raise DamagedReplyError(f"a part exceeds {self._max_held_bytes} bytes")

    def _begin(self, kind: Kind, events: list[Event], call_id: str = "", name: str = "") -> None:
        events.append(PartStart(choice=0, part=self._next_part, kind=kind, id=call_id, name=name))
        self._next_part += 1
        self._open = kind
        self._arguments = GrowingArguments()

    def close(self, events: list[Event]) -> None:
        """A contentBlockStop, or what has to be one."""
        self._close_part(events)
        self._index = None

    def _close_part(self, events: list[Event]) -> None:
        part = self._next_part - 1
        if self._open is not None:
            if self._open == "tool_call" and (rest := self._arguments.end()):
                events.append(PartDelta(choice=0, part=part, text=rest))
            if self._citations:
                extra = {CITATIONS: self._citations}
                citations = read_citations(self._citations)
                events.append(
                    PartDelta(choice=0, part=part, text="", citations=citations, extra=extra)
                )
            value = "".join(self._signature)
            signature = Signature(SIGNER, value) if value else None
            events.append(PartEnd(choice=0, part=part, signature=signature))
        elif self._held is not None:
            events.append(CompletePart(choice=0, part=part + 1, value=self._held.part()))
            self._next_part += 1
        self._open = self._held = None
        self._signature, self._citations = [], []
        self._held_bytes = 0


class _Held:
    """A part that is held until it is complete. deltas: in the form of its kind."""

    def __init__(self, kind: str, start: dict[str, Any]) -> None:
        self.kind = kind
        self.deltas: list[Any] = []
        self._start = start

    def takes(self, delta: dict[str, Any]) -> bool:
        """Whether `delta` is of this part."""
        return self.kind in ("toolResult", "image") and self.kind in delta

    def part(self) -> Part:
        """Raises DamagedReplyError."""
        if self.kind == "redacted":
            return redacted(b"".join(self.deltas))
        if self.kind == "image":
            return self._image()
        if self.kind == "toolUse":
            text = "".join(self.deltas)
            value = {**self._start, "input": msgspec.json.decode(text) if text else {}}
        else:
            content = [result for delta in self.deltas for result in as_list(delta["toolResult"])]
            value = {**self._start, "content": content}
        return Opaque(DIALECT, {self.kind: value})

    def _image(self) -> Part:
        pieces = []
        for delta in self.deltas:
            image = delta["image"]
            source = image.get("source") if isinstance(image, dict) else None
            if isinstance(source, dict) and "bytes" in source:
                pieces.append(from_base64(source["bytes"], "image.source.bytes"))
        data = base64.b64encode(b"".join(pieces)).decode()
        return read_media("image", self._start.get("format"), data)
