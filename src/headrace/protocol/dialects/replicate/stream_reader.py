"""The event stream of a prediction: `output` (plain text), `error`, `done`, and `logs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.protocol import sse
from headrace.protocol.dialects.replicate.prediction import error_kind
from headrace.protocol.dialects.status_failure import short
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
)
from headrace.protocol.neutral.failure import Failure, FailureKind


class ReplicateStreamReader:
    """A reader of one answer.

    began: the first event; the stream itself names neither prediction nor model. at_end: events
    that follow the choice's end; with () the answer continues elsewhere, as `steps` has it.
    """

    def __init__(self, began: ReplyStart, at_end: tuple[Event, ...] = (ReplyEnd(),)) -> None:
        self._began: ReplyStart | None = began
        self._at_end = at_end
        self._events = sse.SSEReader()
        self._is_open = False
        self.is_over = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        if self.is_over:
            return events
        try:
            found = self._events.feed(piece)
        except sse.StreamTooLargeError as error:
            return self._fail("damaged", str(error))
        for event in found:
            if not self.is_over:
                self._take(event, events)
        return events

    def end(self) -> list[Event]:
        """After the last byte."""
        if self.is_over:
            return []
        return self._fail("network", "the stream ended before its event done")

    def _take(self, event: sse.Event, events: list[Event]) -> None:
        take = _TAKES.get(event.event)
        if take is None:
            return
        # Nothing is said of an answer that fails before it has begun.
        if self._began is not None and event.event != "error":
            events.append(self._began)
            self._began = None
        take(self, event.data, events)

    def _output(self, data: str, events: list[Event]) -> None:
        if not data:
            return
        if not self._is_open:
            self._is_open = True
            events.append(PartStart(choice=0, part=0, kind="text"))
        events.append(PartDelta(choice=0, part=0, text=data))

    def _error(self, data: str, events: list[Event]) -> None:
        message = short(_field(data, "detail") or _field(data, "error") or data)
        events += self._fail(error_kind(message), message or "the stream ended with an error")

    def _done(self, data: str, events: list[Event]) -> None:
        """`data` is {}, or says why there is no more: {"reason": "canceled"} or "error"."""
        reason = _field(data, "reason")
        if reason:
            events += self._fail("server", f"the prediction ended with {reason[:40]!r}")
            return
        if self._is_open:
            events.append(PartEnd(choice=0, part=0))
        events.append(ChoiceEnd(choice=0, reason="stop"))
        events += self._at_end
        self.is_over = True

    def _fail(self, kind: FailureKind, message: str) -> list[Event]:
        self.is_over = True
        return [ReplyFailure(Failure(kind=kind, message=message))]


_TAKES: dict[str, Callable[[ReplicateStreamReader, str, list[Event]], None]] = {
    "output": ReplicateStreamReader._output,
    "error": ReplicateStreamReader._error,
    "done": ReplicateStreamReader._done,
}


def _field(data: str, name: str) -> str:
    try:
        value: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
