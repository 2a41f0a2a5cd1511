"""An answer as the events of a Responses stream: named, numbered, and without a [DONE].

The last event repeats the whole answer, so the writer bounds how much of it there is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_responses.reply.failures import error_event
from headrace.protocol.dialects.openai_responses.reply.output import Output
from headrace.protocol.dialects.openai_responses.reply.write_reply import Response
from headrace.protocol.dialects.openai_responses.values import objects
from headrace.protocol.neutral.call import ChatCall
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
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import KEEP_ALIVE, MAX_EVENT_BYTES, one_line

# Of a part, a piece or a token that might have come instead, beside its text: the least that the
# objects for it take. So a million pieces of a token each are too many, and no model says as much.
_BESIDE_TEXT_BYTES = 64


class AnswerSize:
    """The running size of what is kept of an answer.

    most_bytes: no reader accepts a larger event.
    """

    def __init__(self, most_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def take(self, event: PartStart | PartDelta | PartEnd | CompletePart) -> None:
        """Raises AnswerTooLongError."""
        self._bytes += _BESIDE_TEXT_BYTES
        if isinstance(event, PartDelta):
            self._bytes += len(event.text)
            for entry in event.logprobs or ():
                others = objects(entry.get("top_logprobs"))
                self._bytes += _BESIDE_TEXT_BYTES * (1 + len(others))
        elif isinstance(event, CompletePart):
            self._bytes += len(msgspec.json.encode(event.value))
        elif isinstance(event, PartEnd) and event.signature is not None:
            self._bytes += len(event.signature.value)
        if self._bytes > self._most_bytes:
            raise AnswerTooLongError(
                f"the answer exceeds the {self._most_bytes:,} bytes that its last event may have"
            )


class ResponsesStreamWriter:
    """A writer of the stream that a client reads.

    A failure after the first event is `response.failed` with the output so far; before it, `error`.
    """

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._response: Response | None = None
        self._output: Output | None = None
        self._size = AnswerSize()
        self._finished: ChoiceEnd | None = None
        self._usage: TokenUsage | None = None
        self._service_tier: str | None = None
        self._sequence_number = 0
        self._over = False
        self.whole: dict[str, Any] | None = None
        """The response object of the last event, once that is written."""

    def write(self, event: Event) -> bytes:
        """The bytes that an event becomes. Raises AnswerTooLongError."""
        if self._over:
            return b""
        if isinstance(event, ReplyStart):
            return self._began(event)
        if isinstance(event, ReplyFailure):
            return self._failed(event)
        if self._response is None or self._output is None:
            return b""
        if isinstance(event, ReplyUsage):
            self._usage, self._service_tier = event.usage, event.service_tier
            return b""
        if isinstance(event, ReplyEnd):
            return self._ended(self._response, self._output)
        if event.choice != 0:
            return b""
        if isinstance(event, ChoiceEnd):
            self._finished = event
            return self._events(self._output.finish(event.reason))
        self._size.take(event)
        return self._events(self._output.take(event))

    def not_stored(self) -> bytes:
        """Say at the end that the response cannot be found later: the last event once more, if it
        was written."""
        if self._response is not None:
            self._response.not_stored()
        if self.whole is None:
            return b""
        self.whole["store"] = False
        self._sequence_number -= 1
        return self._event({"type": _ended_as(self.whole), "response": self.whole})

    def keep_alive(self) -> bytes:
        """A comment, which every reader of server-sent events skips."""
        return KEEP_ALIVE

    def _began(self, event: ReplyStart) -> bytes:
        self._response = Response(self._call, event)
        self._output = Output(self._response.id, own=self._response.own)
        self._usage = event.usage
        begun = self._response.begun()
        return self._event({"type": "response.created", "response": begun}) + self._event(
            {"type": "response.in_progress", "response": begun}
        )

    def _failed(self, event: ReplyFailure) -> bytes:
        self._over = True
        if self._response is None or self._output is None:
            return self._event(error_event(event.failure))
        self._output.cut()
        failed = self._response.failed(self._output.items, event.failure, self._usage)
        return self._event({"type": "response.failed", "response": failed})

    def _ended(self, response: Response, output: Output) -> bytes:
        self._over = True
        closing = self._events(output.finish(None)) if self._finished is None else b""
        reason = self._finished.reason if self._finished else None
        extra = self._finished.extra if self._finished else {}
        whole = response.ended(output.items, reason, self._usage, self._service_tier, extra)
        self.whole = whole
        return closing + self._event({"type": _ended_as(whole), "response": whole})

    def _events(self, events: list[dict[str, Any]]) -> bytes:
        if len(events) == 1:
            return self._event(events[0])
        return b"".join([self._event(event) for event in events])

    def _event(self, event: dict[str, Any]) -> bytes:
        event["sequence_number"] = self._sequence_number
        self._sequence_number += 1
        data = one_line(msgspec.json.encode(event))
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data)


def _ended_as(whole: dict[str, Any]) -> str:
    """The name of the last event of a stream that did not fail."""
    return f"response.{'incomplete' if whole['status'] == 'incomplete' else 'completed'}"
