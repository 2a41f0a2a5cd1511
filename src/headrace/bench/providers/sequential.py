"""The same prompts one after another and all at once: what sending them together gains."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.bench.providers.rows import VisitRow
from headrace.bench.providers.samples import (
    Pass,
    batch_pass,
    is_pair,
    latencies_ms,
    median,
    whole_pass,
)
from headrace.bench.statistics import percentile


class Sequential(msgspec.Struct, frozen=True, kw_only=True):
    """The same requests one after another and all at once; medians over visits.

    speedup: wall time one after another over that of all at once.
    """

    requests: int
    visits: int
    single_wall_s: float
    batch_wall_s: float
    speedup: float
    single_tps: float
    batch_tps: float
    single_e2e_ms: float
    batch_e2e_ms: float
    single_ttft_ms: float | None
    batch_ttft_ms: float | None


def sequential(visits: Sequence[VisitRow]) -> Sequential | None:
    """Of visits in which both were answered in full; None without one."""
    visits = [one for one in visits if is_pair(one)]
    pairs: list[tuple[Pass, Pass]] = []
    for visit in visits:
        alone, together = whole_pass(visit.of("single")), batch_pass(visit)
        if alone is not None and together is not None:
            pairs.append((alone, together))
    if not pairs:
        return None
    single = [row for one in visits for row in one.of("single")]
    batch = [row for one in visits for row in one.of("batch")]
    return Sequential(
        requests=pairs[-1][0].requests,
        visits=len(pairs),
        single_wall_s=_middle([one.wall_s for one, _ in pairs]),
        batch_wall_s=_middle([one.wall_s for _, one in pairs]),
        speedup=_middle([alone.wall_s / together.wall_s for alone, together in pairs]),
        single_tps=_middle([one.tokens_per_s for one, _ in pairs]),
        batch_tps=_middle([one.tokens_per_s for _, one in pairs]),
        single_e2e_ms=_middle(latencies_ms(single, "e2e_ns")),
        batch_e2e_ms=_middle(latencies_ms(batch, "e2e_ns")),
        single_ttft_ms=median(latencies_ms(single, "ttft_ns")),
        batch_ttft_ms=median(latencies_ms(batch, "ttft_ns")),
    )


def _middle(values: Sequence[float]) -> float:
    return percentile(sorted(values), 0.5)
