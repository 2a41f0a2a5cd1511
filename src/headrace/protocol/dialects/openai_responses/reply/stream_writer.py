"""An answer as the events of a Responses stream: named, numbered, and without a [DONE]."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_responses.reply.failures import error_event
from headrace.protocol.dialects.openai_responses.reply.kept import Kept
from headrace.protocol.dialects.openai_responses.reply.output import Output
from headrace.protocol.dialects.openai_responses.reply.response import Response
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import KEEP_ALIVE, one_line


class ResponsesStreamWriter:
    """A writer of the stream that a client reads.

    A failure after the first event is `response.failed` with the output so far; before it, `error`.
    """

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._response: Response | None = None
        self._output: Output | None = None
        self._kept = Kept()
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
        self._kept.take(event)
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

    def _events(self, told: list[dict[str, Any]]) -> bytes:
        if len(told) == 1:
            return self._event(told[0])
        return b"".join([self._event(one) for one in told])

    def _event(self, told: dict[str, Any]) -> bytes:
        told["sequence_number"] = self._sequence_number
        self._sequence_number += 1
        data = one_line(msgspec.json.encode(told))
        return b"event: %b\ndata: %b\n\n" % (told["type"].encode(), data)


def _ended_as(whole: dict[str, Any]) -> str:
    """The name of the last event of a stream that did not fail."""
    return f"response.{'incomplete' if whole['status'] == 'incomplete' else 'completed'}"
