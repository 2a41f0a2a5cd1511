"""What plots and comparisons draw on: the values of each request, under one definition.

A summary has distributions; these are the samples behind them, with the time at which each request
was sent and how many others were in flight then. Times are in milliseconds, moments in seconds of
the run's clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from headrace.bench.concurrency import flights, steady_window, whole_window
from headrace.bench.definitions import DEFINITIONS, Clock, Definition, Measures
from headrace.bench.definitions.tokens import chunk_tokens, streamed_tokens
from headrace.bench.record import RequestRecord, RunRecord
from headrace.bench.statistics import Samples

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Sample:
    """One completed request: what it measured from either clock."""

    record: RequestRecord
    sent: Measures
    intended: Measures

    def of(self, clock: Clock) -> Measures:
        return self.sent if clock == "sent" else self.intended


class RunSamples:
    """The measured requests of a run. `began_s` is when the first was wanted or sent."""

    def __init__(self, run: RunRecord, definition: Definition = DEFINITIONS["headrace"]) -> None:
        self.definition = definition
        self.records = [record for record in run.requests if record.measured]
        self.samples: list[Sample] = []
        for record in self.records:
            sent = definition.measure(record, "sent")
            intended = definition.measure(record, "intended")
            if sent is not None and intended is not None:
                self.samples.append(Sample(record, sent, intended))

    @cached_property
    def began_s(self) -> float:
        moments = [record.intended_ns for record in self.records]
        moments += [one.sent_ns for one in self.records if one.sent_ns is not None]
        return min(moments, default=0) / _NS_PER_S

    @cached_property
    def ended_s(self) -> float:
        """Last end, or last intended send time where that is later."""
        moments = [record.end_ns for record in self.records if record.end_ns is not None]
        moments += [record.intended_ns for record in self.records]
        return max(moments, default=0) / _NS_PER_S

    def values_ms(self, canonical: str, clock: Clock) -> list[float]:
        """Of a metric of ours, under the definition's own; pooled where it is one of gaps."""
        metric = self.definition.metric(canonical)
        if metric is None or metric.each == "rate":
            return []
        measured = [sample.of(clock) for sample in self.samples]
        if metric.each == "gap":
            return [
                gap / _NS_PER_MS for one in measured for gap in one.gaps_ns.get(metric.name, ())
            ]
        return [
            one.times_ns[metric.name] / _NS_PER_MS
            for one in measured
            if metric.name in one.times_ns
        ]

    def gaps_by_request(self, canonical: str) -> list[list[float]]:
        """Of a metric of gaps: those of each completed request, in milliseconds."""
        metric = self.definition.metric(canonical)
        if metric is None or metric.each != "gap":
            return []
        return [
            [gap / _NS_PER_MS for gap in sample.sent.gaps_ns.get(metric.name, ())]
            for sample in self.samples
        ]

    def by_request(self, canonical: str, clock: Clock) -> list[tuple[Sample, float]]:
        """Of a metric of which a request has one value: who had which, in milliseconds."""
        metric = self.definition.metric(canonical)
        if metric is None or metric.each != "request":
            return []
        return [
            (sample, value / _NS_PER_MS)
            for sample in self.samples
            if (value := sample.of(clock).times_ns.get(metric.name)) is not None
        ]

    def has_two_clocks(self) -> bool:
        """Whether any request left later than the schedule wanted."""
        return any(one.record.sent_ns != one.record.intended_ns for one in self.samples)

    @cached_property
    def failures(self) -> list[RequestRecord]:
        return [record for record in self.records if record.failure is not None]

    def in_flight_at(self, moments_ns: Sequence[int]) -> list[int]:
        """How many requests were in flight at each moment, one that begins then not counted."""
        flown = flights(self.records)
        starts = sorted(one.start_ns for one in flown)
        ends = sorted(one.end_ns for one in flown)
        return [bisect_left(starts, at) - bisect_right(ends, at) for at in moments_ns]

    @cached_property
    def gaps(self) -> tuple[Samples, Samples]:
        """Every gap between content chunks of completed streams: when it ended [s], how long [ms].

        Ours, whatever the definition: each picture of stalls shows the same thing.
        """
        at: list[int] = []
        gap: list[int] = []
        for sample in self.samples:
            for before, after in pairwise(sample.record.content):
                at.append(after.at_ns)
                gap.append(after.at_ns - before.at_ns)
        return np.asarray(at, dtype=float) / _NS_PER_S, np.asarray(gap, dtype=float) / _NS_PER_MS

    @cached_property
    def token_moments(self) -> tuple[Samples, Samples]:
        """When content came [s], and how many tokens, failed streams' included."""
        at: list[float] = []
        tokens: list[float] = []
        for record in self.records:
            content = record.content
            for chunk, held in zip(
                content, chunk_tokens(content, streamed_tokens(record)), strict=True
            ):
                at.append(chunk.at_ns / _NS_PER_S)
                tokens.append(held)
        return np.asarray(at, dtype=float), np.asarray(tokens, dtype=float)

    def steady_tokens_per_s(self) -> Samples:
        """Output tokens in each whole second of the steady window; of the whole run without one."""
        return self._steady_per_s(*self.token_moments)

    def steady_requests_per_s(self) -> Samples:
        """Completed requests in each of the same seconds, by their ends."""
        ends = [one.record.end_ns for one in self.samples if one.record.end_ns is not None]
        at = np.asarray(ends, dtype=float) / _NS_PER_S
        return self._steady_per_s(at, np.ones(at.size))

    def _steady_per_s(self, at: Samples, weights: Samples) -> Samples:
        flown = flights(self.records)
        window = steady_window(flown) or whole_window(flown)
        if window is None:
            return np.empty(0)
        seconds = int(window.seconds)
        start = window.start_ns / _NS_PER_S
        inside = (at >= start) & (at < start + seconds)
        if not seconds:
            return np.empty(0)
        slots = (at[inside] - start).astype(np.int64)
        counted = np.bincount(slots, weights=weights[inside], minlength=seconds)
        return counted[:seconds].astype(np.float64)
