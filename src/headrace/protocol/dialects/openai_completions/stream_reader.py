"""A provider's stream of `text_completion`s as neutral events."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_chat.reply.failures import failure_in
from headrace.protocol.dialects.openai_chat.reply.finish import ReadFinish, read_finish
from headrace.protocol.dialects.openai_chat.reply.usage import find_usage, read_usage, usage_extra
from headrace.protocol.dialects.openai_chat.values import (
    NOT_JSON,
    decode,
    left_over,
    objects,
    text,
    whole,
)
from headrace.protocol.dialects.openai_completions.logprobs import read_columns
from headrace.protocol.dialects.openai_completions.read_reply import CHOICE, TOP, index_of
from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.sse import DONE_DATA, SSEReader, StreamTooLargeError
from headrace.protocol.sse import Event as ServerSentEvent

# 1,024 prompts with some answers each.
_MOST_CHOICES = 16_384


class _Choice:
    """A choice while it is received. finish: None while it grows. extra: further fields of its
    events."""

    def __init__(self) -> None:
        self.began = False
        self.finish: ReadFinish | None = None
        self.stop_sequence: str | None = None
        self.extra: dict[str, Any] = {}


class CompletionStreamReader:
    """A `StreamReader`. [DONE] ends the stream well; without it, choices that all are finished."""

    def __init__(self) -> None:
        self._sse = SSEReader()
        self._began = self._over = False
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] = {}

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        if self._over:
            return events
        try:
            for event in self._sse.feed(piece):
                self._take_event(event, events)
                if self._over:
                    break
        except StreamTooLargeError as error:
            self._fail("damaged", str(error), events)
        return events

    def end(self) -> list[Event]:
        """After the last byte."""
        if self._over:
            return []
        # A last event whose empty line is missing; what was cut inside of it does not decode.
        events = self.feed(b"\n\n")
        failed = events[-1] if events else None
        if self._over and not (
            isinstance(failed, ReplyFailure) and failed.failure.kind == "damaged"
        ):
            return events
        if self._over:
            events.pop()
            self._over = False
            self._fail("network", "the stream ended before the answer did", events)
        elif self._choices and all(choice.finish is not None for choice in self._choices.values()):
            self._finish(events)
        else:
            self._fail("network", "the stream ended before the answer did", events)
        return events

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
            self._fail("damaged", f"an event of the stream is not JSON: {error}", events)
            return
        if not isinstance(chunk, dict):
            self._fail("damaged", "an event of the stream is not an object", events)
            return
        is_error = event.event == "error" and "error" not in chunk
        failure = failure_in({"error": chunk} if is_error else chunk)
        self._usage = find_usage(chunk) or self._usage
        if failure is not None:
            self._fail_with(failure, events)
            return
        for at, choice in enumerate(objects(chunk.get("choices"))):
            self._begin(chunk, events)
            self._take_choice(choice, index_of(choice, at), events)
            if self._over:
                return

    def _begin(self, chunk: dict[str, Any], events: list[Event]) -> None:
        if self._began:
            return
        self._began = True
        events.append(
            ReplyStart(
                id=text(chunk.get("id")),
                model=text(chunk.get("model")),
                created_s=whole(chunk.get("created")) or None,
                extra=left_over(chunk, TOP),
                dialect=DIALECT,
            )
        )

    def _take_choice(self, choice: dict[str, Any], index: int, events: list[Event]) -> None:
        growing = self._choices.get(index)
        if growing is None:
            if len(self._choices) >= _MOST_CHOICES:
                self._fail("damaged", f"more than {_MOST_CHOICES:,} choices", events)
                return
            growing = self._choices[index] = _Choice()
        piece = text(choice.get("text"))
        logprobs = read_columns(choice.get("logprobs")) or None
        if piece or logprobs:
            if not growing.began:
                growing.began = True
                events.append(PartStart(choice=index, part=0, kind="text"))
            events.append(PartDelta(choice=index, part=0, text=piece, logprobs=logprobs))
        growing.stop_sequence = text(choice.get("stop_reason")) or growing.stop_sequence
        if not choice.keys() <= CHOICE:
            growing.extra |= left_over(choice, CHOICE)
        if choice.get("finish_reason"):
            growing.finish = read_finish(choice["finish_reason"], has_tool_calls=False)
            if growing.finish.failed is not None:
                self._fail(growing.finish.failed, "the provider broke off its answer", events)

    def _finish(self, events: list[Event]) -> None:
        if not self._choices:
            self._fail("damaged", "the stream ended without any choice", events)
            return
        for index, growing in sorted(self._choices.items()):
            if growing.began:
                events.append(PartEnd(choice=index, part=0))
        for index, growing in sorted(self._choices.items()):
            finish = growing.finish
            events.append(
                ChoiceEnd(
                    choice=index,
                    reason=(finish.reason if finish else None) or "stop",
                    stop_sequence=growing.stop_sequence,
                    extra=growing.extra | (finish.extra if finish else {}),
                )
            )
        self._count(events)
        events.append(ReplyEnd())
        self._over = True

    def _count(self, events: list[Event]) -> None:
        usage = read_usage(self._usage)
        if usage is not None:
            more = usage_extra(self._usage)
            events.append(ReplyUsage(usage=usage, extra={"usage": more} if more else {}))

    def _fail(self, kind: FailureKind, message: str, events: list[Event]) -> None:
        self._fail_with(Failure(kind=kind, message=message), events)

    def _fail_with(self, failure: Failure, events: list[Event]) -> None:
        """End with a failure, after the usage if known: a broken answer is billed too."""
        if self._began:
            self._count(events)
        self._over = True
        events.append(ReplyFailure(failure))
