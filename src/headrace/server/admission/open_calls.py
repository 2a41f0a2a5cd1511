"""The calls that are open now, for who looks after the server: what they do, and an end to them.

What is known of a call is its CallRecord's; this file only keeps the records of those that are
open, and ends one as if its client had gone, except that the client is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from headrace.protocol.openai.error import SERVER_ERROR
from headrace.server.api_error import ApiError
from headrace.telemetry.call import CallRecord

if TYPE_CHECKING:
    from headrace.server.replies.event_stream import EventStream

CANCELLED = "cancelled"


class OpenCallFacts(msgspec.Struct, frozen=True):
    """An open call.

    Tokens are sums over the call's prompts (choices of one prompt count it once) and choices.
    """

    request_id: str
    endpoint: str
    age_s: float
    state: Annotated[
        str,
        Meta(description='"preparing", "queued" or "running"; of several choices, the furthest.'),
    ]
    stream: bool
    prompt_tokens: int
    output_tokens: int


class OpenCall:
    """One call until its reply is written. Used from the event loop."""

    def __init__(self, request_id: str, record: CallRecord) -> None:
        self.request_id = request_id
        self.record = record
        self.cancelled = False
        """Whether somebody has ended it; the handler's task is cancelled then."""
        self.stream: EventStream | None = None
        """Set as soon as the reply is a stream."""
        self.task = asyncio.current_task()
        """Of the handler; None once that has given a reply."""

    def cancel(self) -> None:
        """End it; its client gets an error, as the reply or as the stream's last event."""
        if self.stream is not None:
            self.stream.abandon(cancelled())
        elif self.task is not None and not self.cancelled:
            self.cancelled = True
            self.task.cancel()

    def facts(self, now_s: float) -> OpenCallFacts:
        """What to show of it; `now_s` is of the clock the record was begun with."""
        timelines = self.record.timelines
        started = any(one.started_s is not None or one.generated_tokens for one in timelines)
        return OpenCallFacts(
            request_id=self.request_id,
            endpoint=self.record.endpoint,
            age_s=round(now_s - self.record.arrival_s, 3),
            state="running" if started else "queued" if timelines else "preparing",
            stream=self.stream is not None,
            prompt_tokens=sum(group[0].prompt_tokens for group in self.record.prompts.values()),
            output_tokens=sum(one.generated_tokens for one in timelines),
        )


class OpenCalls:
    """The table of open calls. Ids are the clients' where they send one, so several may have the
    same.
    """

    def __init__(self) -> None:
        self._calls: set[OpenCall] = set()

    @contextmanager
    def call(self, request_id: str, record: CallRecord) -> Iterator[OpenCall]:
        """For as long as a call is open."""
        one = OpenCall(request_id, record)
        self._calls.add(one)
        try:
            yield one
        finally:
            self._calls.discard(one)

    def facts(self, now_s: float) -> list[OpenCallFacts]:
        """All, the oldest first."""
        oldest_first = sorted(self._calls, key=lambda one: one.record.arrival_s)
        return [one.facts(now_s) for one in oldest_first]

    def cancel(self, request_id: str) -> int:
        """End those with this id; how many there were."""
        found = [one for one in self._calls if one.request_id == request_id]
        for one in found:
            one.cancel()
        return len(found)


def cancelled() -> ApiError:
    """What the client of a call that was ended is told."""
    return ApiError(
        503,
        "the request was cancelled by the server's administrator",
        type=SERVER_ERROR,
        code=CANCELLED,
    )
