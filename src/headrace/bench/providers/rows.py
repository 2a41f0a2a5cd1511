"""What the database holds of one request and one visit, typed: the layer between SQL and figures.

Times are nanoseconds from the visit's start; latencies are those of our own definitions, from the
actual send time. What the answers said is not kept.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.record import RequestRecord

Phase = Literal["single", "batch"]

_HEADRACE = DEFINITIONS["headrace"]


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Fields are the columns of the table `requests`, but for its visit."""

    phase: Phase
    position: int
    """The prompt's; equal ones of both phases are the same prompt."""
    intended_ns: int
    begun_ns: int | None
    sent_ns: int | None
    headers_ns: int | None
    end_ns: int | None
    ttft_ns: float | None
    ttfot_ns: float | None
    tpot_ns: float | None
    e2e_ns: float | None
    stall_ns: float | None
    queue_ns: int | None
    chunks: int
    characters: int
    """Characters of the answer, including reasoning and tool calls."""
    first_characters: int
    """Characters of its first chunk."""
    prompt_tokens: int | None
    output_tokens: int | None
    """The server's count, or the client's where that is None in `told_tokens`."""
    told_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    output_tokens_asked: int | None
    status: int | None
    error: str | None
    message: str | None
    finish_reason: str | None
    new_connection: bool


REQUEST_COLUMNS = tuple(field.name for field in msgspec.structs.fields(RequestRow))


def request_row(phase: Phase, record: RequestRecord) -> RequestRow:
    """Of a record whose tokens have been counted."""
    measured = _HEADRACE.measure(record, "sent")
    times = {} if measured is None else measured.times_ns
    failure, usage = record.failure, record.usage
    content = record.content
    return RequestRow(
        phase=phase,
        position=record.index,
        intended_ns=record.intended_ns,
        begun_ns=record.begun_ns,
        sent_ns=record.sent_ns,
        headers_ns=record.headers_ns,
        end_ns=record.end_ns,
        ttft_ns=times.get("ttft"),
        ttfot_ns=times.get("ttfot"),
        tpot_ns=times.get("tpot"),
        e2e_ns=times.get("e2e"),
        stall_ns=times.get("stall"),
        queue_ns=record.queue_ns,
        chunks=len(content),
        characters=sum(len(chunk.text) for chunk in content),
        first_characters=len(content[0].text) if content else 0,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        told_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens_asked=record.output_tokens_asked,
        status=record.status,
        error=None if failure is None else failure.kind,
        message=None if failure is None else failure.message,
        finish_reason=record.finish_reason,
        new_connection=record.new_connection,
    )


class VisitRow(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's part of one round, with its requests."""

    round: int
    series: int
    """Its number in the database; visits of one series measured the same thing."""
    place: int
    """0 for who came first in the round."""
    began_at: float
    """Seconds since the epoch."""
    ended_at: float
    outcome: str
    message: str
    client_bound: bool | None
    """Whether the client was the limit, None where that was not measured."""
    requests: tuple[RequestRow, ...] = ()

    def of(self, phase: Phase) -> tuple[RequestRow, ...]:
        """Requests of one phase that were not cut off by the end of the run."""
        return tuple(
            one for one in self.requests if one.phase == phase and one.error != "cancelled"
        )


class SeriesRow(msgspec.Struct, frozen=True, kw_only=True):
    """A provider under a workload: facts as `identity` has them; `said` is what was said last."""

    id: int
    name: str
    provider: dict[str, object]
    workload: dict[str, object]
    said: dict[str, object]
    workload_id: int
