"""Figures of one visit from its rows: what spreads and lines over time are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from headrace.bench.cost import batching_efficiency
from headrace.bench.providers.rows import RequestRow, VisitRow
from headrace.bench.statistics import percentile

Latency = Literal["ttft_ns", "e2e_ns", "tpot_ns"]

_NS_PER_S = 1e9


class Pass(NamedTuple):
    """One phase as a whole. wall_s: from its begin to the end of its last reply."""

    requests: int
    wall_s: float
    tokens_per_s: float


def latencies_ms(rows: Sequence[RequestRow], which: Latency) -> list[float]:
    """Of those that have one: failed requests do not."""
    values = [getattr(row, which) for row in rows]
    return [value / 1e6 for value in values if value is not None]


def stream_rates(rows: Sequence[RequestRow]) -> list[float]:
    """Tokens a second of each stream after its first token: 1 / TPOT."""
    return [1000 / value for value in latencies_ms(rows, "tpot_ns") if value > 0]


def median(values: Sequence[float]) -> float | None:
    """None of none."""
    return percentile(sorted(values), 0.5) if values else None


def whole_pass(rows: Sequence[RequestRow]) -> Pass | None:
    """None without an output token, or where nobody knows when it ended."""
    ends = [row.end_ns for row in rows if row.end_ns is not None]
    tokens = sum(row.output_tokens or 0 for row in rows if row.error is None)
    if not ends or not tokens:
        return None
    wall_s = (max(ends) - min(row.intended_ns for row in rows)) / _NS_PER_S
    return Pass(len(rows), wall_s, tokens / wall_s) if wall_s > 0 else None


def batch_pass(visit: VisitRow) -> Pass | None:
    """Of a batch that nothing cut short."""
    return whole_pass(visit.of("batch")) if visit.outcome == "complete" else None


def efficiency(visit: VisitRow) -> float | None:
    """Of the batch: its tokens a second over as many times those of requests alone."""
    together, alone = batch_pass(visit), whole_pass(visit.of("single"))
    if together is None or alone is None:
        return None
    return batching_efficiency(together.tokens_per_s, together.requests, alone.tokens_per_s)


def is_pair(visit: VisitRow) -> bool:
    """Whether the same prompts were answered one after another and all at once."""
    single, batch = visit.of("single"), visit.of("batch")
    same = [row.position for row in single] == [row.position for row in batch]
    return bool(single) and same and all(row.error is None for row in visit.requests)
