"""What a server's stored /metrics texts tell of it over time.

Reads the names that vLLM and headrace use; a server that has none of them has no plots. A counter
that falls has begun anew with its server, and counts from 0. Knows no plots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Series = list[tuple[float, float]]
"""(second of the run, value), ascending in time."""


class Stretch(NamedTuple):
    """Between two readings: when it ended, operations per byte, operations per second of steps."""

    at_s: float
    intensity: float
    ops_per_s: float


@dataclass(frozen=True, slots=True)
class ServerSeries:
    """Empty where the server does not tell.

    kv_use, prefix_hits, mbu, mfu: shares, 0 to 1 (mbu may be above). preemptions: since the first
    reading. rates: tokens per second. read_limit, compute_limit: per second, None if not measured.
    unread: texts that are not Prometheus's format.
    """

    kv_use: Series = field(default_factory=list)
    running: Series = field(default_factory=list)
    waiting: Series = field(default_factory=list)
    prefix_hits: Series = field(default_factory=list)
    preemptions: Series = field(default_factory=list)
    prompt_tokens_per_s: Series = field(default_factory=list)
    output_tokens_per_s: Series = field(default_factory=list)
    mbu: Series = field(default_factory=list)
    mfu: Series = field(default_factory=list)
    roofline: list[Stretch] = field(default_factory=list)
    read_limit: float | None = None
    compute_limit: float | None = None
    readings: int = 0
    unread: int = 0


_NAMES = {
    "kv": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt": ("vllm:prompt_tokens_total",),
    "output": ("vllm:generation_tokens_total",),
    "bytes": ("headrace:step_bytes_total",),
    "operations": ("headrace:step_operations_total",),
    "stepped": ("headrace:step_seconds_sum",),
    "read_limit": ("headrace:read_limit_bytes_per_second",),
    "compute_limit": ("headrace:compute_limit_operations_per_second",),
}


def server_series(texts: Sequence[tuple[int, str]]) -> ServerSeries:
    """Of (ns of the run, text), in any order. Of several engines sums, and the mean of shares."""
    readings: list[tuple[float, dict[str, float]]] = []
    unread = 0
    for at_ns, text in sorted(texts):
        found = _read(text)
        if found is None:
            unread += 1
        else:
            readings.append((at_ns / 1e9, found))
    series = ServerSeries(readings=len(readings), unread=unread)
    gauges = (("kv", series.kv_use), ("running", series.running), ("waiting", series.waiting))
    for at, found in readings:
        for name, line in gauges:
            if name in found:
                line.append((at, found[name]))
    preempted = 0.0
    for (before, old), (after, new) in pairwise(readings):
        grown = {name: _grown(old, new, name) for name in _NAMES if name in old and name in new}
        if after <= before:
            continue
        if grown.get("queries"):
            series.prefix_hits.append((after, grown.get("hits", 0.0) / grown["queries"]))
        if "preemptions" in grown:
            preempted += grown["preemptions"]
            series.preemptions.append((after, preempted))
        for name, line in (
            ("prompt", series.prompt_tokens_per_s),
            ("output", series.output_tokens_per_s),
        ):
            if name in grown:
                line.append((after, grown[name] / (after - before)))
        _use(series, after, grown, new)
    last = readings[-1][1] if readings else {}
    return replace(
        series,
        read_limit=last.get("read_limit") or None,
        compute_limit=last.get("compute_limit") or None,
    )


def _use(series: ServerSeries, at: float, grown: dict[str, float], new: dict[str, float]) -> None:
    """Of the time that steps took, not of the time that passed: idling is not inefficiency."""
    seconds = grown.get("stepped", 0.0)
    if seconds <= 0:
        return
    moved, done = grown.get("bytes", 0.0), grown.get("operations", 0.0)
    if new.get("read_limit"):
        series.mbu.append((at, moved / seconds / new["read_limit"]))
    if new.get("compute_limit"):
        series.mfu.append((at, done / seconds / new["compute_limit"]))
    if moved > 0 and done > 0:
        series.roofline.append(Stretch(at, done / moved, done / seconds))


def _grown(old: dict[str, float], new: dict[str, float], name: str) -> float:
    return new[name] - old[name] if new[name] >= old[name] else new[name]


def _read(text: str) -> dict[str, float] | None:
    """The values by our short names; None of what is not Prometheus's format."""
    values: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    values.setdefault(sample.name, []).append(sample.value)
    except ValueError:
        return None
    found = {
        short: sum(next(values[name] for name in names if name in values))
        for short, names in _NAMES.items()
        if any(name in values for name in names)
    }
    if "kv" in found:
        found["kv"] /= next(len(values[name]) for name in _NAMES["kv"] if name in values)
    return found
