"""What a server's stored /metrics texts tell of it over time.

A server that has none of the names that are read has no plots. Knows no plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from headrace.telemetry.readings import grown, read_texts, work_of

History = list[tuple[float, float]]
"""(second of the run, value), ascending in time."""


class Stretch(NamedTuple):
    """The time between two readings: when it ended, operations per byte, operations per second of
    steps.
    """

    at_s: float
    intensity: float
    ops_per_s: float


@dataclass(frozen=True, slots=True)
class ServerHistory:
    """A server's figures over time; empty where it reports none."""

    kv_use: History = field(default_factory=list)
    running: History = field(default_factory=list)
    waiting: History = field(default_factory=list)
    prefix_hits: History = field(default_factory=list)
    preemptions: History = field(default_factory=list)
    """Since the first reading. rates: tokens per second."""
    prompt_tokens_per_s: History = field(default_factory=list)
    output_tokens_per_s: History = field(default_factory=list)
    mbu: History = field(default_factory=list)
    mfu: History = field(default_factory=list)
    """With `kv_use` and `prefix_hits` and `mbu`: shares, 0 to 1 (mbu may be above)."""
    roofline: list[Stretch] = field(default_factory=list)
    read_limit: float | None = None
    compute_limit: float | None = None
    """With `read_limit`: per second, None if not measured."""
    readings: int = 0
    unread: int = 0
    """Texts that are not Prometheus's format."""


def server_history(texts: Sequence[tuple[int, str]]) -> ServerHistory:
    """Of (ns of the run, text), in any order."""
    readings, unread = read_texts(texts)
    history = ServerHistory(readings=len(readings), unread=unread)
    gauges = (("kv", history.kv_use), ("running", history.running), ("waiting", history.waiting))
    for at, found, _ in readings:
        for name, line in gauges:
            if name in found:
                line.append((at, found[name]))
    preempted = 0.0
    for (before, old, _), (after, new, _) in pairwise(readings):
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
    last: Mapping[str, float] = readings[-1].values if readings else {}
    return replace(
        history,
        read_limit=last.get("read_limit") or None,
        compute_limit=last.get("compute_limit") or None,
    )


def _use(
    history: ServerHistory, at: float, more: Mapping[str, float], new: Mapping[str, float]
) -> None:
    """Of the time that steps took, not of the time that passed: idling is not inefficiency."""
    seconds = more.get("stepped", 0.0)
    if seconds <= 0:
        return
    work = work_of(more)
    if new.get("read_limit"):
        history.mbu.append((at, work.bytes / seconds / new["read_limit"]))
    if new.get("compute_limit"):
        computing_s = work.computing_s(new["compute_limit"], new.get("attention_limit"))
        history.mfu.append((at, computing_s / seconds))
    if work.bytes > 0 and work.operations > 0:
        history.roofline.append(Stretch(at, work.intensity, work.operations / seconds))
