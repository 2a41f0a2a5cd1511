"""What a definition is: a set of pure functions from one record to the metrics of one tool.

`Measures` of a request are numbers under the tool's own names, times in nanoseconds. A `Definition`
says, metric by metric, what counts (that table is printed in reports), which version of the source
says so, and what a record cannot reproduce. Helpers here are what several definitions share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import msgspec

from headrace.bench.record import Chunk, RequestRecord
from headrace.bench.statistics import Interpolation

Clock = Literal["intended", "sent"]
"""Where a latency begins: when the schedule wanted the request sent, or when it was sent."""

Canonical = Literal[
    "ttfb",
    "ttft",
    "ttfot",
    "tpot",
    "tpot_incl",
    "itl_chunk",
    "itl_token",
    "stall",
    "e2e",
    "tps_user",
]
"""Names under which metrics of different tools stand side by side; those of `headrace`."""


class Metric(msgspec.Struct, frozen=True):
    """A row of a definition's table."""

    name: str
    """The tool's name for it."""
    canonical: Canonical | None
    """The metric of ours that it corresponds to, if any."""
    counts: str
    each: Literal["request", "gap", "rate"] = "request"
    """"request" where a request has one value, "gap" where it has one for every gap between chunks,
    "rate" where it has one in tokens per second; the others are times."""


@dataclass(frozen=True, slots=True)
class Measures:
    """One completed request in a tool's terms; what it has no value for is absent."""

    times_ns: dict[str, float]
    """One value for each metric."""
    gaps_ns: dict[str, tuple[float, ...]]
    """All values of each metric."""
    output_tokens: int | None
    prompt_tokens: int | None
    """With `output_tokens`: as the tool counts them."""
    rates: dict[str, float] = field(default_factory=dict)
    """Tokens per second of each metric."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of `times_ns`, if the tool weighs requests."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool's definitions of the metrics."""

    name: str
    source: str
    metrics: tuple[Metric, ...]
    measure: Callable[[RequestRecord, Clock], Measures | None]
    """Measures one request; None if the tool counts it as failed."""
    interpolation: Interpolation
    degrees: int
    without_tpot: Literal["met", "missed"]
    """Whether an SLO on TPOT is met by a request with one token, which has none."""
    unlike: tuple[str, ...] = ()
    """What it shows otherwise than the tool itself would, each a sentence."""
    of_completions: Callable[[RequestRecord, Clock], Measures | None] | None = None
    """The same where the API is that of completions; None where the tool measures both alike."""

    def of_api(self, kind: str | None) -> Definition:
        """As the tool measures replies of this API (`RunRecord.api`); those of a chat where None:
        from the replies alone nobody can tell them."""
        if kind != "openai-completions" or self.of_completions is None:
            return self
        return replace(self, measure=self.of_completions)

    def metric(self, canonical: str) -> Metric | None:
        """The tool's metric that answers to one of ours."""
        return next((row for row in self.metrics if row.canonical == canonical), None)


def completed(record: RequestRecord) -> bool:
    """Sent, answered in full and without an error."""
    return record.failure is None and record.sent_ns is not None and record.end_ns is not None


def start_ns(record: RequestRecord, clock: Clock) -> int:
    """Of a request that was sent."""
    if clock == "intended":
        return record.intended_ns
    if record.sent_ns is None:
        raise ValueError(f"sent_ns of request {record.index} is None: it was never sent")
    return record.sent_ns


def tool_start_ns(record: RequestRecord, clock: Clock) -> int:
    """Where other tools start their clock: before they connect, where the record knows that."""
    if clock == "sent" and record.begun_ns is not None:
        return record.begun_ns
    return start_ns(record, clock)


def last_ns(record: RequestRecord, counted: tuple[Chunk, ...]) -> int:
    """Of the last counted chunk; of the response's end where it carried nothing."""
    if counted:
        return counted[-1].at_ns
    if record.end_ns is None:
        raise ValueError(f"end_ns of request {record.index} is None: it never ended")
    return record.end_ns


def gaps_ns(chunks: tuple[Chunk, ...]) -> tuple[float, ...]:
    """Between each chunk and the one before it."""
    return tuple(float(after.at_ns - before.at_ns) for before, after in pairwise(chunks))


def first_times_ns(
    content: tuple[Chunk, ...], start: int, token: str, answer: str
) -> dict[str, float]:
    """From `start` to the first chunk and to the first of text or a tool call.

    token, answer: the tool's names for the two. The second is absent where all is reasoning.
    """
    times = {token: float(content[0].at_ns - start)}
    found = next((chunk for chunk in content if chunk.kind in ("text", "tool")), None)
    if found is not None:
        times[answer] = float(found.at_ns - start)
    return times


def client_counts(record: RequestRecord) -> tuple[int | None, int | None]:
    """Output and prompt tokens as the client counted them, as the server did where it did not."""
    told, output, prompt = record.usage, record.client_output_tokens, record.client_prompt_tokens
    return (
        told.completion_tokens if output is None else output,
        told.prompt_tokens if prompt is None else prompt,
    )
