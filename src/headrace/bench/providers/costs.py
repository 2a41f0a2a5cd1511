"""What the requests of a series cost, from the prices that the file said last.

A price is known or it is not: a cost that needs one that nobody gave is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.bench.cost import TokenPrice, run_cost_usd, usd_per_million_tokens
from headrace.bench.providers.rows import RequestRow


class ProviderCost(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars. per_million: of all tokens of the requests that were answered, at their mix of
    input, cached input and output; for a machine by the hour, of output at the batch's rate.
    tps_per_usd_per_million: of one stream, over per_million."""

    input_usd: float | None
    output_usd: float | None
    cached_usd: float | None
    usd_per_hour: float | None
    per_million: float | None
    per_1000_requests: float | None
    tps_per_usd_per_million: float | None


def cost(
    said: Mapping[str, object],
    rows: Sequence[RequestRow],
    *,
    tps: float | None,
    tps_batch: float | None,
) -> ProviderCost:
    """said: facts of `identity.said_facts`. rows: that were answered. tps: medians."""
    usd = {
        name: value if isinstance(value := said.get(name), (int, float)) else None
        for name in ("input_usd", "output_usd", "cached_usd", "usd_per_hour")
    }
    per_million = per_request = None
    known = [row for row in rows if row.prompt_tokens is not None and row.output_tokens is not None]
    prompt = sum(row.prompt_tokens or 0 for row in known)
    output = sum(row.output_tokens or 0 for row in known)
    if usd["input_usd"] is not None and usd["output_usd"] is not None and prompt + output:
        price = TokenPrice(
            input_usd=usd["input_usd"], output_usd=usd["output_usd"], cached_usd=usd["cached_usd"]
        )
        cached = sum(min(row.cached_tokens or 0, row.prompt_tokens or 0) for row in known)
        total = run_cost_usd(
            price, prompt_tokens=prompt, output_tokens=output, cached_tokens=cached
        )
        per_million = total / (prompt + output) * 1e6
        per_request = total / len(known)
    elif usd["usd_per_hour"] is not None and tps_batch is not None:
        per_million = usd_per_million_tokens(usd["usd_per_hour"], tps_batch)
        per_request = (
            per_million * output / len(known) / 1e6 if per_million is not None and known else None
        )
    return ProviderCost(
        **usd,
        per_million=per_million,
        per_1000_requests=None if per_request is None else per_request * 1000,
        tps_per_usd_per_million=tps / per_million if tps is not None and per_million else None,
    )
