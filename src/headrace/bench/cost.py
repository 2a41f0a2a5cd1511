"""What tokens cost, and what batching gained: figures from counts, rates and prices.

A price is known or it is not: a cost that needs one that nobody gave is unknown, never 0. Prices
are of a hosted endpoint, by tokens, or of a machine, by the hour. Knows no records.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_MILLION = 1_000_000
_S_PER_HOUR = 3600


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of a hosted endpoint, in US dollars per million tokens."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None
    """None: as other input."""


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in US dollars per million tokens, or per hour of the machine."""

    input_usd: float | None = None
    output_usd: float | None = None
    cached_usd: float | None = None
    hour_usd: float | None = None
    source: str | None = None
    """Who states the prices, with their date; None: the user of the command."""
    prompt_tokens_most: int | None = None
    """The longest prompt that the prices hold for; None: any."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a run's completed requests, in US dollars; None: unknown, for the reason in
    `why`."""

    basis: Literal["tokens", "machine", "unknown"] = "unknown"
    """"tokens" at the prices of a hosted endpoint, "machine" for the time from the first start to
    the last end, or "unknown"."""
    prices: Prices = Prices()
    run_usd: float | None = None
    per_request: float | None = None
    per_million_output: float | None = None
    """The whole cost divided by the output tokens."""
    per_million: float | None = None
    """The whole cost divided by prompt and output tokens."""
    tokens_per_s_per_usd: float | None = None
    """Output tokens per second for each dollar per hour."""
    why: str | None = (
        "no price was given, and the catalog has none for this endpoint and model: give "
        "--price-input and --price-output, or --price-per-hour"
    )


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and time that completed requests used."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    uncounted: int
    """Requests some of whose tokens were not counted."""
    seconds: float
    longest_prompt_tokens: int = 0
    """Tokens of the longest prompt."""


def cost(prices: Prices, spent: Spent) -> Cost:
    """Of a run. A machine's price counts where both kinds are given."""
    if prices.hour_usd is not None:
        basis: Literal["tokens", "machine"] = "machine"
        usd: float | None = prices.hour_usd / _S_PER_HOUR * spent.seconds
        why = None
    elif prices == Prices():
        return Cost()
    else:
        basis = "tokens"
        usd, why = _of_tokens(prices, spent)
    counted = usd is not None and not spent.uncounted
    if usd is not None and spent.uncounted:
        why = f"the tokens of {spent.uncounted} requests were not counted"
        usd = usd if basis == "machine" else None
    known = Cost(
        basis=basis,
        prices=prices,
        run_usd=usd,
        per_request=None if usd is None or not spent.requests else usd / spent.requests,
        why=why,
    )
    if usd is None or not counted or not spent.seconds:
        return known
    per_hour = usd / spent.seconds * _S_PER_HOUR
    output = spent.output_tokens / spent.seconds
    return msgspec.structs.replace(
        known,
        per_million_output=usd_per_million_tokens(per_hour, output),
        per_million=usd_per_million_tokens(per_hour, output + spent.prompt_tokens / spent.seconds),
        tokens_per_s_per_usd=tokens_per_s_per_usd(output, per_hour),
    )


def _of_tokens(prices: Prices, spent: Spent) -> tuple[float | None, str | None]:
    """Dollars, or why they are unknown; a price is needed only where there are such tokens."""
    most = prices.prompt_tokens_most
    if most is not None and spent.longest_prompt_tokens > most:
        return None, (
            f"prompts of more than {most:,} tokens have another price, and the run had some: "
            "give --price-input and --price-output"
        )
    if prices.input_usd is None and spent.prompt_tokens:
        return None, "the price of input is unknown: give --price-input"
    if prices.output_usd is None and spent.output_tokens:
        return None, "the price of output is unknown: give --price-output"
    price = TokenPrice(
        input_usd=prices.input_usd or 0.0,
        output_usd=prices.output_usd or 0.0,
        cached_usd=prices.cached_usd,
    )
    return (
        run_cost_usd(
            price,
            prompt_tokens=spent.prompt_tokens,
            output_tokens=spent.output_tokens,
            cached_tokens=min(spent.cached_tokens, spent.prompt_tokens),
        ),
        None,
    )


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
    return usd_per_hour / _S_PER_HOUR / tokens_per_s * _MILLION if tokens_per_s > 0 else None


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
