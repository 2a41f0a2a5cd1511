"""The stream of streamGenerateContent?alt=sse: events that are each a small answer.

It has no end mark but the end of the connection: the first models wrote a finishReason into every
event, so that one says little. A stream in which some choice never got one was cut.
"""

from __future__ import annotations

from headrace.protocol.dialects.gemini.reply.failures import failure_of
from headrace.protocol.dialects.gemini.reply.read_reply import AnswerReader
from headrace.protocol.dialects.gemini.values import json_value
from headrace.protocol.dialects.json_values import mapping
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import Event, ReplyFailure
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.sse import DONE_DATA, MAX_EVENT_BYTES, SSEReader, StreamTooLargeError


class GeminiStreamReader:
    """A state machine over bytes; `end` gives ChoiceEnd, ReplyUsage and ReplyEnd."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._sse = SSEReader(max_event_bytes=max_event_bytes)
        self._answer = AnswerReader()
        self._over = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`. Damage is a ReplyFailure event, never an exception."""
        events: list[Event] = []
        if self._over:
            return events
        try:
            for event in self._sse.feed(piece):
                self._take(event.data, events)
                if self._over:
                    break
        except (DamagedReplyError, StreamTooLargeError) as error:
            events += self._fail(Failure(kind="damaged", message=str(error)))
        return events

    def end(self) -> list[Event]:
        """After the last byte: how the reply ended, or a ReplyFailure that it did not."""
        if self._over:
            return []
        self._over = True
        return self._answer.finish(streamed=True)

    def _take(self, data: str, events: list[Event]) -> None:
        if not data or data == DONE_DATA:
            return
        value = json_value(data)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            raise DamagedReplyError("an event of the stream is not an object")
        error = mapping(value.get("error"))
        if error:
            events += self._fail(failure_of(error, None))
        else:
            self._answer.take(value, events)

    def _fail(self, failure: Failure) -> list[Event]:
        self._over = True
        return [*self._answer.broken_off(), ReplyFailure(failure)]
