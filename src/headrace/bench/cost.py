"""What tokens cost, and what batching gained: figures from a rate and a price. Knows no records."""

from __future__ import annotations

import msgspec

_MILLION = 1_000_000


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Of a hosted endpoint, in US dollars per million tokens; cached None: as other input."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None


def run_cost_usd(
    price: TokenPrice, *, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0
) -> float:
    """cached_tokens are among prompt_tokens. Raises ValueError where they are more."""
    if cached_tokens > prompt_tokens:
        raise ValueError(f"cached_tokens {cached_tokens} of {prompt_tokens} prompt_tokens")
    cached_usd = price.input_usd if price.cached_usd is None else price.cached_usd
    return (
        (prompt_tokens - cached_tokens) * price.input_usd
        + cached_tokens * cached_usd
        + output_tokens * price.output_usd
    ) / _MILLION


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float | None:
    """Of a machine that is paid by the hour; None where it makes no tokens."""
    return usd_per_hour / 3600 / tokens_per_s * _MILLION if tokens_per_s > 0 else None


def tokens_per_s_per_usd(tokens_per_s: float, usd_per_hour: float) -> float | None:
    """Tokens a second for each dollar an hour; None where it costs nothing."""
    return tokens_per_s / usd_per_hour if usd_per_hour > 0 else None


def batching_efficiency(
    tokens_per_s: float, concurrency: float, tokens_per_s_alone: float
) -> float | None:
    """Throughput with so many requests in flight over as many times that of one alone.

    1: each runs as fast as if it were alone; 1 / concurrency: they might as well queue.
    """
    ideal = concurrency * tokens_per_s_alone
    return tokens_per_s / ideal if ideal > 0 else None
