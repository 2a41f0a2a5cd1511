"""A line about each visit, while the campaign goes on."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.providers.rows import RequestRow
from headrace.bench.providers.samples import latencies_ms, median, stream_rates, whole_pass
from headrace.page.figures import duration, figure


def visit_line(outcome: str, message: str, rows: Sequence[RequestRow]) -> str:
    """Medians of the requests alone, the batch's rate, and what failed."""
    single = [row for row in rows if row.phase == "single"]
    batch = [row for row in rows if row.phase == "batch"]
    parts = []
    ttft_ms, rate = median(latencies_ms(single, "ttft_ns")), median(stream_rates(single))
    if ttft_ms is not None:
        parts.append(f"TTFT {duration(ttft_ms)}")
    if rate is not None:
        parts.append(f"{figure(rate)} tok/s")
    together = whole_pass(batch)
    if together is not None and outcome == "complete":
        parts.append(f"{len(batch)} at once {figure(together.tokens_per_s)} tok/s")
    failed = sum(row.error is not None for row in rows)
    if outcome == "interrupted":
        parts.append("interrupted")
    elif failed:
        parts.append(f"{failed} of {len(rows)} failed: {message}")
    return ", ".join(parts) or outcome
