"""The events of a provider's Responses stream.

Deltas are reported as they come; what an item's end says beyond them (annotations, encrypted
thoughts, text that no delta had) is reported at its end. Items of which one began before the other
ended (OpenRouter: a message within the reasoning before it) are reported one after the other,
function calls side by side. What OpenAI alone knows (web search and the like) comes when it is
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.protocol.dialects.openai_responses.reply.failures import read_error
from headrace.protocol.dialects.openai_responses.reply.items_stream import ItemsStream
from headrace.protocol.dialects.openai_responses.reply.logprobs import read_logprobs
from headrace.protocol.dialects.openai_responses.reply.read_reply import (
    finish_extra,
    read_finish,
    response_extra,
    response_failure,
    response_of,
)
from headrace.protocol.dialects.openai_responses.reply.usage import is_billed, usage_extra, usage_of
from headrace.protocol.dialects.openai_responses.values import (
    count,
    mapping,
    objects,
    text,
    too_deep,
    whole,
)
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.sse import DONE_DATA, SSEReader, StreamTooLargeError
from headrace.protocol.sse import Event as ServerSentEvent

# Items that are nothing until they grow; any other one is work of the provider's.
_EMPTY_ITEMS = ("message", "reasoning")
_PINGS = ("keepalive", "ping")
_MEDIA = (
    "response.image_generation_call.partial_image",
    "response.audio.delta",
    "response.audio.transcript.delta",
)


class ResponsesStreamReader:
    """A reader of one answer. origin: the vendor of its encrypted_content. has_media, has_data: as
    in PartialContentReader; tools_used: as in ToolUseReader."""

    def __init__(self, origin: str) -> None:
        self._sse = SSEReader()
        self._items = ItemsStream(origin)
        self._out: list[Event] = self._items.out
        self._began = False
        self._over = False
        self.has_media = self.has_data = self.tools_used = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        if self._over:
            return []
        try:
            for event in self._sse.feed(piece):
                self._take(event)
                if self._over:
                    break
        except StreamTooLargeError as error:
            self._fail("damaged", str(error))
        return self._taken()

    def end(self) -> list[Event]:
        """After the last byte."""
        if not self._over:
            self._fail("network", "the provider's stream ended before the response did")
        return self._taken()

    def _taken(self) -> list[Event]:
        taken = self._out[:]
        self._out.clear()
        return taken

    def _take(self, event: ServerSentEvent) -> None:
        if event.data == DONE_DATA or not event.data:
            return
        try:
            value = msgspec.json.decode(event.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            self._fail("damaged", "an event of the provider's stream is not valid JSON")
            return
        if not isinstance(value, dict) or too_deep(value, event.data):
            self._fail("damaged", "an event of the provider's stream is not a plain JSON object")
            return
        kind = text(value.get("type")) or event.event
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, value)
        elif kind == "error" or (value.get("error") and not kind.startswith("response.")):
            self._failed(read_error(value, None))
        elif kind not in _PINGS:
            self.has_data = True
            self.has_media = self.has_media or kind in _MEDIA
        if self._items.too_many:
            self._fail("damaged", "the provider's stream has too many items")

    def _begin(self, event: dict[str, Any]) -> None:
        if self._began:
            return
        self._began = True
        response = response_of(event)
        tier = text(response.get("service_tier"))
        self._out.append(
            ReplyStart(
                id=text(response.get("id")),
                model=text(response.get("model")),
                created_s=whole(response.get("created_at")),
                # "auto" is what was asked for: only the end tells where it led.
                service_tier=None if tier == "auto" else tier or None,
                extra=response_extra(response),
            )
        )

    def _lifecycle(self, event: dict[str, Any]) -> None:
        self._begin(event)

    def _item_added(self, event: dict[str, Any]) -> None:
        self._begin(event)
        item = mapping(event.get("item"))
        self.has_data = self.has_data or item.get("type") not in _EMPTY_ITEMS
        self._items.added(count(event.get("output_index")), item)

    def _item_done(self, event: dict[str, Any]) -> None:
        self._begin(event)
        item = mapping(event.get("item"))
        self.has_data = True
        self.tools_used = self.tools_used or is_billed(item)
        self._items.done(count(event.get("output_index")), item)

    def _part_added(self, event: dict[str, Any]) -> None:
        kind = mapping(event.get("part")).get("type")
        if kind == "output_text":
            self._grow(event, "text", "content_index", "")
        elif kind == "refusal":
            self._grow(event, "refusal", "content_index", "")
        elif kind == "reasoning_text":
            self._grow(event, "thought", "content_index", "")
        elif kind == "summary_text":
            self._grow(event, "summary", "summary_index", "")

    def _part_done(self, event: dict[str, Any]) -> None:
        self._begin(event)
        part = mapping(event.get("part"))
        self._items.part_done(
            count(event.get("output_index")),
            count(event.get("content_index", event.get("summary_index"))),
            part,
        )

    def _text(self, event: dict[str, Any]) -> None:
        self._begin(event)
        self._items.grew(
            count(event.get("output_index")),
            "text",
            count(event.get("content_index")),
            text(event.get("delta")),
            read_logprobs(event.get("logprobs")) or None,
        )

    def _refusal(self, event: dict[str, Any]) -> None:
        self._grow(event, "refusal", "content_index", text(event.get("delta")))

    def _thought(self, event: dict[str, Any]) -> None:
        self._grow(event, "thought", "content_index", text(event.get("delta")))

    def _summary(self, event: dict[str, Any]) -> None:
        self._grow(event, "summary", "summary_index", text(event.get("delta")))

    def _grow(self, event: dict[str, Any], kind: Any, index: str, piece: str) -> None:
        self._begin(event)
        at = count(event.get("output_index"))
        self._items.grew(at, kind, count(event.get(index)), piece, None)

    def _arguments(self, event: dict[str, Any]) -> None:
        self._begin(event)
        self._items.arguments(count(event.get("output_index")), text(event.get("delta")))

    def _ended(self, event: dict[str, Any]) -> None:
        self._begin(event)
        response = response_of(event)
        failure = response_failure(response)
        if failure is not None:
            self._count(response)
            self._failed(failure)
            return
        self._items.end(objects(response.get("output")))
        if not response.get("status"):
            response = {**response, "status": text(event.get("type")).rpartition(".")[2]}
        extra = finish_extra(response)
        if more := usage_extra(response.get("usage")):
            extra["usage"] = more
        reason = read_finish(response, has_tool_calls=self._items.has_tool_calls)
        self._out.append(ChoiceEnd(choice=0, reason=reason or "stop", extra=extra))
        self._count(response)
        self._out.append(ReplyEnd())
        self._over = True

    def _gave_up(self, event: dict[str, Any]) -> None:
        response = {"status": "failed", **response_of(event)}
        failure = response_failure(response)
        self._count(response)
        self._failed(failure or read_error(event, None))

    def _count(self, response: dict[str, Any]) -> None:
        """Report the usage, also of a broken answer, which is billed too."""
        usage = usage_of(response, tools_used=self.tools_used)
        if usage is not None:
            tier = text(response.get("service_tier")) or None
            self._out.append(ReplyUsage(usage=usage, service_tier=tier))

    def _fail(self, kind: FailureKind, message: str) -> None:
        self._failed(Failure(kind=kind, message=message))

    def _failed(self, failure: Failure) -> None:
        if not self._over:
            if not failure.message:
                failure = msgspec.structs.replace(failure, message="the provider gave up")
            self._out.append(ReplyFailure(failure))
        self._over = True


_Handler = Callable[[ResponsesStreamReader, dict[str, Any]], None]
_HANDLERS: dict[str, _Handler] = {
    "response.created": ResponsesStreamReader._lifecycle,
    "response.queued": ResponsesStreamReader._lifecycle,
    "response.in_progress": ResponsesStreamReader._lifecycle,
    "response.output_item.added": ResponsesStreamReader._item_added,
    "response.output_item.done": ResponsesStreamReader._item_done,
    "response.content_part.added": ResponsesStreamReader._part_added,
    "response.content_part.done": ResponsesStreamReader._part_done,
    "response.reasoning_summary_part.added": ResponsesStreamReader._part_added,
    "response.reasoning_summary_part.done": ResponsesStreamReader._part_done,
    "response.output_text.delta": ResponsesStreamReader._text,
    "response.refusal.delta": ResponsesStreamReader._refusal,
    "response.reasoning_text.delta": ResponsesStreamReader._thought,
    "response.reasoning_summary_text.delta": ResponsesStreamReader._summary,
    "response.function_call_arguments.delta": ResponsesStreamReader._arguments,
    "response.completed": ResponsesStreamReader._ended,
    "response.incomplete": ResponsesStreamReader._ended,
    "response.failed": ResponsesStreamReader._gave_up,
    "response.cancelled": ResponsesStreamReader._gave_up,
}
