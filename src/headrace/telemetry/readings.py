"""What a server's stored /metrics texts tell: the names that vLLM and headrace use, read once.

A server that has none of them tells nothing. Of several engines values are added, and shares
averaged. A counter that falls has begun anew with its server, and counts from 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from headrace.telemetry.work import Work

MOST_PLACES = 16
"""Of drafts in a row that are told apart; no proposer in use goes beyond."""

# A name with a dot is that of a series with such a `position`. Of several names the first that a
# text has counts: older versions of vLLM wrote the later ones.
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
    "draft_rows": ("vllm:spec_decode_num_drafts_total",),
    **{
        f"accepted_{place}": (f"vllm:spec_decode_num_accepted_tokens_per_pos_total.{place}",)
        for place in range(MOST_PLACES)
    },
    "compared_steps": ("headrace:spec_decode_compared_steps_total",),
    "compared_tokens": ("headrace:spec_decode_compared_tokens_total",),
    "compared_s": ("headrace:spec_decode_compared_seconds_total",),
    "plain_s": ("headrace:spec_decode_plain_seconds_total",),
    "bytes": ("headrace:step_bytes_total",),
    "operations": ("headrace:step_operations_total",),
    "attention": ("headrace:step_attention_operations_total",),
    "stepped": ("headrace:step_seconds_sum",),
    "steps": ("headrace:engine_steps_total",),
    "begun": ("vllm:request_prefill_time_seconds_count",),
    "queued": ("vllm:request_queue_time_seconds_sum",),
    "prefilled": ("vllm:request_prefill_time_seconds_sum",),
    "read_limit": ("headrace:read_limit_bytes_per_second",),
    "compute_limit": ("headrace:compute_limit_operations_per_second",),
    "attention_limit": ("headrace:attention_limit_operations_per_second",),
    "started": ("process_start_time_seconds",),
}
_COUNTERS = frozenset({
    "draft_rows", "compared_steps", "compared_tokens", "compared_s", "plain_s",
    *(f"accepted_{place}" for place in range(MOST_PLACES)),
    "hits", "queries", "preemptions", "prompt", "output", "drafted", "accepted", "bytes",
    "operations", "attention", "stepped", "steps", "begun", "queued", "prefilled",
})  # fmt: skip
_WRITTEN = sorted({name.partition(".")[0] for names in _NAMES.values() for name in names})
_OURS = re.compile(rf"(?:{'|'.join(_WRITTEN)})[\s{{]")
_SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*[\s{]")


class Reading(NamedTuple):
    """One reading of a server's /metrics."""

    at_s: float
    """Second of the run."""
    values: Mapping[str, float]
    """Values by the short names above."""
    engines: int = 1
    """Series of one gauge."""


def read_texts(texts: Iterable[tuple[int, str]]) -> tuple[list[Reading], int]:
    """Of (ns of the run, text) in any order: readings in order of time, and how many texts are not
    Prometheus's format. A text that tells nothing of ours is a reading without values."""
    readings: list[Reading] = []
    unread = 0
    for at_ns, text in sorted(texts):
        values = _values(text)
        if values is None:
            unread += 1
            continue
        found = {
            short: next(values[name] for name in names if name in values)
            for short, names in _NAMES.items()
            if any(name in values for name in names)
        }
        sums = {short: sum(many) for short, many in found.items()}
        if "kv" in sums:
            sums["kv"] /= len(found["kv"])
        readings.append(Reading(at_ns / 1e9, sums, len(found.get("running", ())) or 1))
    return readings, unread


def grown(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """By how much each counter grew from one reading to the next, of those that both have."""
    return {
        name: new[name] - old[name] if new[name] >= old[name] else new[name]
        for name in new
        if name in _COUNTERS and name in old
    }


def growth(readings: Sequence[Reading], name: str) -> float | None:
    """By how much a counter grew over all of them. None where it is not told twice."""
    if name not in _COUNTERS:
        raise ValueError(f"{name} is not a counter")
    told = [reading.values for reading in readings if name in reading.values]
    if len(told) < 2:
        return None
    return sum(grown(old, new)[name] for old, new in pairwise(told))


def work_of(more: Mapping[str, float]) -> Work:
    """What steps did, by the growth of their counters. An older server does not tell operations of
    attention apart."""
    operations = more.get("operations", 0.0)
    return Work(more.get("bytes", 0.0), operations, more.get("attention", 0.0))


def values_of(readings: Sequence[Reading], name: str) -> list[float]:
    """Of a gauge, in order of time."""
    return [reading.values[name] for reading in readings if name in reading.values]


def _values(text: str) -> dict[str, list[float]] | None:
    """Of our names, those of each series; None of what is not Prometheus's format."""
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
                    place = sample.labels.get("position")
                    name = sample.name if place is None else f"{sample.name}.{place}"
                    values.setdefault(name, []).append(sample.value)
    except ValueError:
        return None
    return values
