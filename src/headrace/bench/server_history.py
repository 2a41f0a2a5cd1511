"""What a server's stored /metrics texts tell of it over time.

Reads the names that vLLM and headrace use; a server that has none of them has no plots. A counter
that falls has begun anew with its server, and counts from 0. Knows no plots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

History = list[tuple[float, float]]
"""(second of the run, value), ascending in time."""


class Stretch(NamedTuple):
    """Between two readings: when it ended, operations per byte, operations per second of steps."""

    at_s: float
    intensity: float
    ops_per_s: float


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """Empty where the server does not tell.

    kv_use, prefix_hits, mbu, mfu: shares, 0 to 1 (mbu may be above). preemptions: since the first
    reading. rates: tokens per second. read_limit, compute_limit: per second, None if not measured.
    unread: texts that are not Prometheus's format.
    """

    kv_use: History = field(default_factory=list)
    running: History = field(default_factory=list)
    waiting: History = field(default_factory=list)
    prefix_hits: History = field(default_factory=list)
    preemptions: History = field(default_factory=list)
    prompt_tokens_per_s: History = field(default_factory=list)
    output_tokens_per_s: History = field(default_factory=list)
    mbu: History = field(default_factory=list)
    mfu: History = field(default_factory=list)
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

_COUNTERS = (
    *("hits", "queries", "preemptions", "prompt", "output", "bytes", "operations", "stepped"),
)
_OURS = re.compile(rf"(?:{'|'.join(name for names in _NAMES.values() for name in names)})[\s{{]")
_SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*[\s{]")


Reading = tuple[float, dict[str, float]]
"""(second of the run, values by the names of `_NAMES`)."""


def read_texts(texts: Sequence[tuple[int, str]]) -> tuple[list[Reading], int]:
    """Of (ns of the run, text) in any order: readings in order of time, and how many texts are not
    Prometheus's format. Of several engines sums, and the mean of shares."""
    readings: list[Reading] = []
    unread = 0
    for at_ns, text in sorted(texts):
        found = _read(text)
        if found is None:
            unread += 1
        else:
            readings.append((at_ns / 1e9, found))
    return readings, unread


def grown(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    """By how much each counter grew from one reading to the next, of those that both have."""
    return {name: _grown(old, new, name) for name in _COUNTERS if name in old and name in new}


def server_history(texts: Sequence[tuple[int, str]]) -> ServerHistory:
    """Of (ns of the run, text), in any order."""
    readings, unread = read_texts(texts)
    history = ServerHistory(readings=len(readings), unread=unread)
    gauges = (("kv", history.kv_use), ("running", history.running), ("waiting", history.waiting))
    for at, found in readings:
        for name, line in gauges:
            if name in found:
                line.append((at, found[name]))
    preempted = 0.0
    for (before, old), (after, new) in pairwise(readings):
        if after <= before:
            continue
        more = grown(old, new)
        if more.get("queries"):
            history.prefix_hits.append((after, more.get("hits", 0.0) / more["queries"]))
        if "preemptions" in more:
            preempted += more["preemptions"]
            history.preemptions.append((after, preempted))
        for name, line in (
            ("prompt", history.prompt_tokens_per_s),
            ("output", history.output_tokens_per_s),
        ):
            if name in more:
                line.append((after, more[name] / (after - before)))
        _use(history, after, more, new)
    last = readings[-1][1] if readings else {}
    return replace(
        history,
        read_limit=last.get("read_limit") or None,
        compute_limit=last.get("compute_limit") or None,
    )


def _use(history: ServerHistory, at: float, more: dict[str, float], new: dict[str, float]) -> None:
    """Of the time that steps took, not of the time that passed: idling is not inefficiency."""
    seconds = more.get("stepped", 0.0)
    if seconds <= 0:
        return
    moved, done = more.get("bytes", 0.0), more.get("operations", 0.0)
    if new.get("read_limit"):
        history.mbu.append((at, moved / seconds / new["read_limit"]))
    if new.get("compute_limit"):
        history.mfu.append((at, done / seconds / new["compute_limit"]))
    if moved > 0 and done > 0:
        history.roofline.append(Stretch(at, done / moved, done / seconds))


def _grown(old: dict[str, float], new: dict[str, float], name: str) -> float:
    return new[name] - old[name] if new[name] >= old[name] else new[name]


def _read(text: str) -> dict[str, float] | None:
    """The values by our short names; None of what is not Prometheus's format."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not all(_SAMPLE.match(line) for line in lines):
        return None
    # A server tells hundreds of others in each of thousands of texts.
    ours = "".join(f"{line}\n" for line in lines if _OURS.match(line))
    values: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(ours):
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
