"""What a server's stored /metrics texts tell that plans look at.

Names are vLLM's, which headrace uses too, and headrace's own. Values of several engines are added,
shares averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_NAMES = {
    "kv": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prompt": ("vllm:prompt_tokens_total",),
    "output": ("vllm:generation_tokens_total",),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "bytes": ("headrace:step_bytes_total",),
    "operations": ("headrace:step_operations_total",),
    "stepped": ("headrace:step_seconds_sum",),
    "steps": ("headrace:engine_steps_total",),
    "begun": ("vllm:request_prefill_time_seconds_count",),
    "queued": ("vllm:request_queue_time_seconds_sum",),
    "prefilled": ("vllm:request_prefill_time_seconds_sum",),
    "read_limit": ("headrace:read_limit_bytes_per_second",),
    "compute_limit": ("headrace:compute_limit_operations_per_second",),
    "started": ("process_start_time_seconds",),
}
_COUNTERS = frozenset({
    "hits", "queries", "preemptions", "prompt", "output", "drafted", "accepted", "bytes",
    "operations", "stepped", "steps", "begun", "queued", "prefilled",
})  # fmt: skip
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\n]*\})?[ \t]+([-+0-9.eE]+)(?:[ \t]|$)",
                     re.MULTILINE)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """at_s: second of the run. values: by the short names above. engines: series of one gauge."""

    at_s: float
    values: dict[str, float] = field(default_factory=dict)
    engines: int = 1


def read_metrics(texts: Iterable[tuple[int, str]]) -> tuple[Reading, ...]:
    """Of (ns of the run, text), in order of time; a text that tells none of it is left out."""
    short = {name: key for key, names in _NAMES.items() for name in names}
    found = []
    for at_ns, text in sorted(texts):
        values: dict[str, list[float]] = {}
        for name, number in _SAMPLE.findall(text):
            key = short.get(name)
            if key is None:
                continue
            try:
                values.setdefault(key, []).append(float(number))
            except ValueError:
                continue
        if values:
            sums = {key: sum(many) for key, many in values.items()}
            if "kv" in values:
                sums["kv"] /= len(values["kv"])
            found.append(Reading(at_ns / 1e9, sums, len(values.get("running", ())) or 1))
    return tuple(found)


def growth(readings: Sequence[Reading], name: str) -> float | None:
    """By how much a counter grew; one that falls began anew. None where it is not told twice."""
    if name not in _COUNTERS:
        raise ValueError(f"{name} is no counter")
    told = [one.values[name] for one in readings if name in one.values]
    if len(told) < 2:
        return None
    return sum(new - old if new >= old else new for old, new in pairwise(told))


def values_of(readings: Sequence[Reading], name: str) -> list[float]:
    """Of a gauge, in order of time."""
    return [one.values[name] for one in readings if name in one.values]
