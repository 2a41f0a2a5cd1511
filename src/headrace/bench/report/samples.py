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

from headrace.bench import throughput
from headrace.bench.collected import collected
from headrace.bench.concurrency import flights, steady_window_of, whole_window
from headrace.bench.definitions import DEFINITIONS, Clock, Definition, Measures
from headrace.bench.pooled import PooledSamples
from headrace.bench.record import RequestRecord, RunRecord
from headrace.bench.statistics import Samples
from headrace.bench.verdict import LEAST_ALLOWED_LAG_NS

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
        definition = definition.of_api(run.api)
        self.definition = definition
        self._run = run
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

    def values_ms(self, canonical: str, clock: Clock) -> PooledSamples | None:
        """Of a metric of ours, under the definition's own, as the summary has them; None where the
        definition has no such metric, or one that is no time."""
        metric = self.definition.metric(canonical)
        if metric is None or metric.each == "rate":
            return None
        return collected([one.of(clock) for one in self.samples], self.definition, metric)

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
        """Whether any request left notably later than the schedule wanted: by more than the lag
        that a client is allowed. No request ever leaves in the very nanosecond."""
        return any(
            (one.record.sent_ns or 0) - one.record.intended_ns > LEAST_ALLOWED_LAG_NS
            for one in self.samples
        )

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
        at_ns, tokens = self._token_moments
        return at_ns / _NS_PER_S, tokens

    @cached_property
    def _token_moments(self) -> tuple[Samples, Samples]:
        return throughput.token_moments(self.records)

    def steady_tokens_per_s(self) -> Samples:
        """Output tokens a second in each slot of about a second of the steady window, of the whole
        run where there is none; their mean is the summary's."""
        return self._steady_per_s(self._token_moments)

    def steady_requests_per_s(self) -> Samples:
        """Completed requests a second in each of the same slots, by their ends."""
        return self._steady_per_s(throughput.answer_moments(self.records))

    def _steady_per_s(self, moments: tuple[Samples, Samples]) -> Samples:
        window = steady_window_of(self._run) or whole_window(flights(self.records))
        return np.empty(0) if window is None else throughput.per_s(moments, window)
