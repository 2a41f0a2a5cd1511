"""What an answer cost: every line of the usage times its price, in whole nano-dollars."""

from __future__ import annotations

import msgspec

from headrace.gateway.targets.target import Price
from headrace.protocol.neutral.usage import TokenUsage

_MILLION = 1_000_000


def cost_nusd(
    usage: TokenUsage,
    price: Price | None,
    service_tier: str | None = None,
    *,
    asked_tier: str | None = None,
) -> int | None:
    """The cost of a usage; a cost that the provider reports itself (OpenRouter's `cost`) wins.

    None if a price is unknown: of the model, of a line of the usage, or of the service tier; or if
    something was used that no line counts. `service_tier` is the tier the provider reports. Where
    it reports none, the requested tier counts, or the standard one if the requested one has no
    known price: clients can request tiers that do not exist.

    The sum is rounded up to a nano-dollar once, so that a sum of bills exceeds the bill of the sum
    by less than one nano-dollar for each bill.
    """
    if usage.cost_nusd is not None:
        return usage.cost_nusd
    if price is None:
        return None
    at_tier = price.of_service_tier(service_tier or asked_tier)
    if at_tier is None:
        if service_tier:
            return None
        at_tier = price
    if usage.is_incomplete and not at_tier.is_free:
        return None
    rates = at_tier.of_prompt(usage.prompt_tokens)
    image = _of_line(usage.images, rates.image)
    second = _of_line(usage.input_audio_s, rates.input_audio_s)
    if image is None or second is None:
        return None
    read = _or(rates.cache_read, rates.input)
    write = _or(rates.cache_write, rates.input)
    write_1h = _or(rates.cache_write_1h, write)
    total = (
        usage.input_tokens * rates.input
        + usage.input_audio_tokens * _or(rates.input_audio, rates.input)
        + usage.cache_read_tokens * read
        + usage.cache_write_tokens * write
        + usage.cache_write_1h_tokens * write_1h
        + usage.output_tokens * rates.output
        + usage.reasoning_tokens * _or(rates.reasoning, rates.output)
        + usage.output_audio_tokens * _or(rates.output_audio, rates.output)
    )
    return -(-total // _MILLION) + image + second


def standard_nusd(usage: TokenUsage, price: Price | None) -> int:
    """The cost of its tokens at the standard service tier, in place of an unknown cost; 0 if that
    price is unknown too."""
    tokens = msgspec.structs.replace(usage, images=0, input_audio_s=0, is_incomplete=False)
    return cost_nusd(tokens, price) or 0


def _of_line(count: int, rate: int | None) -> int | None:
    """The cost of units that are not tokens; None where there are some and the price is unknown."""
    if not count:
        return 0
    return None if rate is None else count * rate


def most_nusd(
    price: Price | None, input_tokens: int, output_tokens: int, service_tier: str | None = None
) -> int | None:
    """The most a request can cost: every token at the dearest price of its side. None if the
    price, or that of the requested service tier, is unknown."""
    at_tier = None if price is None else price.of_service_tier(service_tier)
    if at_tier is None:
        return None
    rates = at_tier.of_prompt(input_tokens)
    read = max(
        rates.input, rates.cache_write or 0, rates.cache_write_1h or 0, rates.input_audio or 0
    )
    written = max(rates.output, rates.reasoning or 0, rates.output_audio or 0)
    return -(-(input_tokens * read + output_tokens * written) // _MILLION)


def _or(rate: int | None, otherwise: int) -> int:
    """A rate that a price does not state is the ordinary one, never zero."""
    return otherwise if rate is None else rate
