"""Whether the client was the limit: then its figures say little of the server.

Three signs, each enough: requests left later than the schedule wanted, timers fired late, or a
process of the client had no core time left. The lag that is allowed is what would go unnoticed in
what is measured: a tenth of the median TTFT, less the loop's median lag that is in it, and 5 ms at
least. A schedule's lag must not hold time that a request waited for its turn under a limit of
concurrency; that is the server's doing. A long garbage collection is told, too, and is no sign: it
explains a maximum and no percentile.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.bench.record import ClientHealth
from headrace.bench.statistics import percentile

LEAST_ALLOWED_LAG_NS = 5_000_000

ALLOWED_SHARE_OF_TTFT = 0.1

ALLOWED_CPU_SHARE = 0.9
"""Of one core: beyond it a process has no room for a burst."""

_NS_PER_MS = 1e6


class ClientVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict whether the client was the limit of a run; `client_bound` is None if that was not
    measured."""

    client_bound: bool | None
    allowed_lag_ms: float
    schedule_lag_p99_ms: float | None
    loop_lag_p99_ms: float | None
    cpu_share: float | None
    """CPU share of the busiest process."""
    sentences: tuple[str, ...]
    """One for each sign, to be read."""
    collections: int | None = None
    """Garbage collections of all processes; None: not watched."""
    collection_most_ms: float | None = None
    collections_total_ms: float | None = None


def client_verdict(
    health: ClientHealth, ttft_p50_ns: float | None, *, has_rate: bool = True
) -> ClientVerdict:
    """ttft_p50_ns: median TTFT from the actual send time; None where there is none. has_rate:
    whether requests came at a rate, which can be lowered, and not each after an answer."""
    # A late loop sees first tokens late: its lag must not allow itself.
    without_lag_ns = (ttft_p50_ns or 0.0) - _p50_ns(health.loop_lag_ns)
    allowed = max(LEAST_ALLOWED_LAG_NS, ALLOWED_SHARE_OF_TTFT * without_lag_ns) / _NS_PER_MS
    schedule, loop = _p99_ms(health.schedule_lag_ns), _p99_ms(health.loop_lag_ns)
    cpu = max(health.cpu_share, default=None)
    signs = [schedule is not None and schedule > allowed, loop is not None and loop > allowed]
    signs.append(cpu is not None and cpu > ALLOWED_CPU_SHARE)
    sentences = []
    if signs[0]:
        lower = "a lower rate" if has_rate else "fewer users"
        sentences.append(
            f"The client was the limit: its requests left late, lag p99 {schedule:.1f} ms where "
            f"{allowed:.1f} ms is allowed; use more --processes or {lower}."
        )
    if signs[1]:
        sentences.append(
            f"The client was the limit: its event loop was late, lag p99 {loop:.1f} ms where "
            f"{allowed:.1f} ms is allowed; use more --processes or fewer streams."
        )
    if signs[2]:
        sentences.append(
            f"The client was the limit: a process of it used {cpu:.0%} of a core where "
            f"{ALLOWED_CPU_SHARE:.0%} is allowed; use more --processes or another machine."
        )
    measured = [one for one in (schedule, loop, cpu) if one is not None]
    pauses = health.collections
    most_ms = None if pauses is None else pauses.longest_ns / _NS_PER_MS
    if not measured:
        sentences.append("Whether the client was the limit was not measured.")
    elif not any(signs):
        sentences.append(_unbound(schedule, loop, cpu, allowed))
    if most_ms is not None and most_ms > allowed:
        sentences.append(
            f"A garbage collection of the client took {most_ms:.1f} ms where {allowed:.1f} ms "
            "is allowed: chunks that arrived during it have times that are too late, and a "
            "longest stall or maximum of about that length may be the client's."
        )
    return ClientVerdict(
        client_bound=any(signs) if measured else None,
        allowed_lag_ms=allowed,
        schedule_lag_p99_ms=schedule,
        loop_lag_p99_ms=loop,
        cpu_share=cpu,
        sentences=tuple(sentences),
        collections=None if pauses is None else pauses.count,
        collection_most_ms=most_ms,
        collections_total_ms=None if pauses is None else pauses.total_ns / _NS_PER_MS,
    )


def _unbound(schedule: float | None, loop: float | None, cpu: float | None, allowed: float) -> str:
    lags = [
        f"{name} lag p99 {lag:.1f} ms"
        for name, lag in (("schedule", schedule), ("event loop", loop))
        if lag is not None
    ]
    found = [f"{' and '.join(lags)} of {allowed:.1f} ms allowed"] if lags else []
    if cpu is not None:
        found.append(f"{cpu:.0%} of a core at most")
    return f"The client was not the limit: {', '.join(found)}."


def _p50_ns(lags_ns: Sequence[int]) -> float:
    return percentile(sorted(lags_ns), 0.5) if lags_ns else 0.0


def _p99_ms(lags_ns: Sequence[int]) -> float | None:
    return percentile(sorted(lags_ns), 0.99) / _NS_PER_MS if lags_ns else None
