"""Usage of the Responses API. Its input includes what was cached, its output what was thought."""

from __future__ import annotations

import math
from typing import Any

from headrace.protocol.dialects.openai_responses.values import mapping, rest
from headrace.protocol.dialects.token_count import as_tokens
from headrace.protocol.neutral.usage import TokenUsage

_NUSD = 1e9
# A million dollars for one answer: more is a fault of who counted, and would empty any budget.
_MOST_NUSD = 10**15
_KNOWN = frozenset(
    {
        "input_tokens",
        "input_tokens_details",
        "output_tokens",
        "output_tokens_details",
        "total_tokens",
        "cost",
    }
)


def read_usage(value: Any) -> TokenUsage | None:
    """None if not both are counted. A detail that is more than its whole is cut to it."""
    usage = mapping(value)
    read, wrote = as_tokens(usage.get("input_tokens")), as_tokens(usage.get("output_tokens"))
    if read is None or wrote is None:
        return None
    details = mapping(usage.get("input_tokens_details"))
    cached = min(_part(details, "cached_tokens"), read)
    written = min(_part(details, "cache_write_tokens"), read - cached)
    audio = min(_part(details, "audio_tokens"), read - cached - written)
    details = mapping(usage.get("output_tokens_details"))
    reasoning = min(_part(details, "reasoning_tokens"), wrote)
    spoken = min(_part(details, "audio_tokens"), wrote - reasoning)
    return TokenUsage(
        input_tokens=read - cached - written - audio,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        input_audio_tokens=audio,
        output_tokens=wrote - reasoning - spoken,
        reasoning_tokens=reasoning,
        output_audio_tokens=spoken,
        cost_nusd=_cost_nusd(usage),
    )


def usage_extra(value: Any) -> dict[str, Any]:
    """What a usage object says beyond TokenUsage."""
    usage = mapping(value)
    extra = rest(usage, _KNOWN)
    if usage.get("is_byok") is True:
        extra["cost"] = usage.get("cost")
    return extra


def write_usage(usage: TokenUsage, extra: dict[str, Any]) -> dict[str, Any]:
    """The usage object; totals are sums of what is billed."""
    read: dict[str, Any] = {
        "cached_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
    }
    wrote: dict[str, Any] = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.input_audio_tokens:
        read["audio_tokens"] = usage.input_audio_tokens
    if usage.output_audio_tokens:
        wrote["audio_tokens"] = usage.output_audio_tokens
    written = {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": read,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": wrote,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cost_nusd is not None and "cost" not in extra:
        written["cost"] = usage.cost_nusd / _NUSD
    return {**extra, **written}


def _part(told: dict[str, Any], name: str) -> int:
    return as_tokens(told.get(name)) or 0


def _cost_nusd(usage: dict[str, Any]) -> int | None:
    """OpenRouter's dollars. With a key of one's own `cost` is its fee, and the vendor's bill
    stands beside it."""
    told = _nusd(usage.get("cost"))
    if told is None or usage.get("is_byok") is not True:
        return told
    vendors = _nusd(mapping(usage.get("cost_details")).get("upstream_inference_cost"))
    return None if vendors is None else told + vendors


def _nusd(cost: Any) -> int | None:
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost):
        return None
    return round(cost * _NUSD) if 0 <= cost <= _MOST_NUSD / _NUSD else None
