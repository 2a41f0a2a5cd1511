"""A provider's stream of chat completion chunks as neutral events.

The first chunk may have no choices (Azure's filter results): the answer begins with the first that
has. Usage is taken wherever it stands, the last one that counts anything. A server that answers
with one JSON body in spite of what was asked is read as well. A choice's end is told at the
stream's end, when nothing more can come.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_chat.reply.citations import listed_pages
from headrace.protocol.dialects.openai_chat.reply.failures import failure_in
from headrace.protocol.dialects.openai_chat.reply.growing_calls import DamagedStreamError
from headrace.protocol.dialects.openai_chat.reply.growing_choice import GrowingChoice
from headrace.protocol.dialects.openai_chat.reply.read_reply import TOP, read_reply
from headrace.protocol.dialects.openai_chat.reply.usage import find_usage, read_usage, usage_extra
from headrace.protocol.dialects.openai_chat.values import (
    DIALECT,
    NOT_JSON,
    decode,
    left_over,
    text,
    whole,
)
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import DONE_DATA, MAX_EVENT_BYTES, SSEReader, StreamTooLargeError
from headrace.protocol.sse import Event as ServerSentEvent

_MOST_CHOICES = 1024
_MOST_KEPT_BYTES = MAX_EVENT_BYTES
_MOST_LEAD_BYTES = 2


class ChatStreamReader:
    """A `StreamReader` for chat completions. done_mark: whether only [DONE] ends the stream well;
    otherwise finished choices do.

    choices: how many were requested. gap_is_thoughts: as in the variant.
    """

    def __init__(
        self, *, done_mark: bool = False, choices: int = 1, gap_is_thoughts: bool = False
    ) -> None:
        self._done_mark = done_mark
        self._wanted = choices
        self._gap_is_thoughts = gap_is_thoughts
        self._sse = SSEReader()
        self._body: bytearray | None = None
        self._sniffed = False
        self._lead = b""
        self._kept = self._kept_bytes = 0
        self._id = ""
        self._began = False
        self._over = False
        self._choices: dict[int, GrowingChoice] = {}
        self._usage: dict[str, Any] = {}
        self._service_tier: str | None = None
        self._extra: dict[str, Any] = {}
        self._told_extra: dict[str, Any] = {}
        self._pages: tuple[Citation, ...] = ()

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        if self._over:
            return []
        events: list[Event] = []
        if not self._sniffed:
            piece = self._lead + piece
            start = piece.lstrip()
            if not start:
                self._lead = piece[-_MOST_LEAD_BYTES:]
                return []
            self._sniffed = True
            if start.startswith(b"{"):
                self._body = bytearray()
        try:
            if self._body is not None:
                self._body += piece
                if len(self._body) > MAX_EVENT_BYTES:
                    raise StreamTooLargeError(f"the reply exceeds {MAX_EVENT_BYTES} bytes")
                return []
            for event in self._sse.feed(piece):
                self._take_event(event, events)
                if self._over:
                    break
        except (StreamTooLargeError, DamagedStreamError) as error:
            self._fail("damaged", str(error), events)
        return events

    def end(self) -> list[Event]:
        """After the last byte."""
        if self._over:
            return []
        if self._body is not None:
            return self._end_body(bytes(self._body))
        # A last event whose empty line is missing; what was cut inside of it does not decode.
        events = self.feed(b"\n\n") if self._sniffed else []
        failed = (
            events and isinstance(events[-1], ReplyFailure) and events[-1].failure.kind == "damaged"
        )
        if self._over and not failed:
            return events
        if failed:
            events.pop()
        elif not self._done_mark and self._finished():
            self._finish(events)
            return events
        self._over = False
        self._fail("network", "the stream ended before the answer did", events)
        return events

    @property
    def content_is_over(self) -> bool:
        """Whether nothing but the usage and the end is still to come."""
        return self._finished()

    @property
    def has_media(self) -> bool:
        """Whether anything of a picture or of sound came."""
        return any(choice.has_sound for choice in self._choices.values())

    @property
    def has_data(self) -> bool:
        """Whether more arrived than the beginnings of an answer and the reported parts."""
        return any(choice.has_data for choice in self._choices.values())

    def _finished(self) -> bool:
        finished = [choice.finished and choice.failed is None for choice in self._choices.values()]
        return len(finished) >= self._wanted and all(finished)

    def _end_body(self, body: bytes) -> list[Event]:
        self._over = True
        try:
            reply = read_reply(body, gap_is_thoughts=self._gap_is_thoughts)
        except DamagedReplyError as error:
            failure = error.failure or Failure(kind="damaged", message=str(error))
            if error.usage is None:
                return [ReplyFailure(failure)]
            return [
                ReplyUsage(usage=error.usage, service_tier=error.service_tier),
                ReplyFailure(failure),
            ]
        return list(replayed(reply))

    def _take_event(self, event: ServerSentEvent, events: list[Event]) -> None:
        data = event.data
        if data.startswith(DONE_DATA):
            self._finish(events)
            return
        if not data.strip():
            return
        try:
            chunk = decode(data)
        except NOT_JSON as error:
            self._fail("damaged", f"a chunk of the stream is not JSON: {error}", events)
            return
        if not isinstance(chunk, dict):
            if event.event == "error" and isinstance(chunk, str):
                self._fail("server", chunk[:2000], events)
            else:
                self._fail("damaged", "a chunk of the stream is not an object", events)
            return
        self._take_chunk(chunk, event.event == "error", len(data), events)

    def _take_chunk(
        self, chunk: dict[str, Any], is_error: bool, size: int, events: list[Event]
    ) -> None:
        usage = find_usage(chunk)
        if usage and (not self._usage or read_usage(usage) != TokenUsage()):
            self._usage = usage
        failure = failure_in({"error": chunk} if is_error and "error" not in chunk else chunk)
        if failure is not None:
            self._fail_with(failure, events)
            return
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return  # a ping, or news that this format does not know
        if not chunk.keys() <= TOP:
            self._extra |= left_over(chunk, TOP)
            self._pages = listed_pages(chunk) or self._pages
        tier = chunk.get("service_tier")
        if isinstance(tier, str) and tier:
            self._service_tier = tier
        if choices and not self._began:
            self._begin(chunk, events)
        for at, choice in enumerate(choices):
            if isinstance(choice, dict):
                self._take_choice(choice, at, events)
                if self._over:
                    return
        kept = len(self._extra) + sum(open_choice.kept for open_choice in self._choices.values())
        grown, self._kept = kept > self._kept, kept
        if grown:
            self._kept_bytes += size
            if self._kept_bytes > _MOST_KEPT_BYTES:
                raise DamagedStreamError(
                    f"more than {_MOST_KEPT_BYTES} bytes of fragments are waiting to be completed"
                )

    def _begin(self, chunk: dict[str, Any], events: list[Event]) -> None:
        self._began = True
        self._id = text(chunk.get("id"))
        self._told_extra = self._extra
        self._extra = {}
        events.append(
            ReplyStart(
                id=self._id,
                model=text(chunk.get("model")),
                created_s=whole(chunk.get("created")) or None,
                service_tier=self._service_tier,
                extra=self._told_extra,
                dialect=DIALECT,
            )
        )

    def _take_choice(self, choice: dict[str, Any], at: int, events: list[Event]) -> None:
        failure = failure_in(choice) if choice.get("error") else None
        if failure is not None:
            self._fail_with(failure, events)
            return
        index = whole(choice.get("index"))
        index = at if index is None or index < 0 else index
        growing = self._choices.get(index)
        if growing is None:
            if len(self._choices) >= _MOST_CHOICES:
                raise DamagedStreamError(f"more than {_MOST_CHOICES} choices in one answer")
            growing = self._choices[index] = GrowingChoice(index, self._id)
        growing.pages = self._pages
        growing.take(choice, events)

    def _finish(self, events: list[Event]) -> None:
        for growing in self._choices.values():
            if growing.failed is not None:
                self._fail(growing.failed, "the provider broke off its answer", events)
                return
        if not self._choices:
            self._fail("damaged", "the stream ended without any choice", events)
            return
        ends: list[ChoiceEnd] = []
        for _, growing in sorted(self._choices.items()):
            ends.append(growing.finish(events))
        events += ends
        self._count(events)
        events.append(ReplyEnd())
        self._over = True

    def _count(self, events: list[Event]) -> None:
        usage = read_usage(self._usage, gap_is_thoughts=self._gap_is_thoughts)
        if usage is None:
            return
        extra = {
            name: value
            for name, value in self._extra.items()
            if name not in self._told_extra or self._told_extra[name] != value
        }
        more = usage_extra(self._usage)
        if more:
            extra["usage"] = more
        events.append(ReplyUsage(usage=usage, service_tier=self._service_tier, extra=extra))

    def _fail(self, kind: FailureKind, message: str, events: list[Event]) -> None:
        self._fail_with(Failure(kind=kind, message=message), events)

    def _fail_with(self, failure: Failure, events: list[Event]) -> None:
        """End with a failure, after the usage if known: a broken answer is billed too."""
        if not self._over and self._began and self._usage:
            self._count(events)
            self._usage = {}
        self._over = True
        events.append(ReplyFailure(failure))
