"""Usage of the Responses API. Its input includes what was cached, its output what was thought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.protocol.dialects.openai_responses.values import mapping, objects, rest
from headrace.protocol.dialects.reported_cost import reported_cost_nusd, unread_cost
from headrace.protocol.dialects.token_count import as_tokens
from headrace.protocol.neutral.dollars import NUSD_PER_USD
from headrace.protocol.neutral.usage import TokenUsage

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
_BILLED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")


def read_usage(value: Any) -> TokenUsage | None:
    """The usage; None unless both input and output are counted. A detail that is more than its
    whole is cut to it."""
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
        cost_nusd=reported_cost_nusd(usage),
    )


def usage_of(response: Mapping[str, Any], *, tools_used: bool = False) -> TokenUsage | None:
    """The usage of a response object. tools_used: whether it is known to have used a tool that is
    billed."""
    usage = read_usage(response.get("usage"))
    if usage is None or not (tools_used or any(map(is_billed, objects(response.get("output"))))):
        return usage
    return msgspec.structs.replace(usage, is_incomplete=True)


def is_billed(item: Mapping[str, Any]) -> bool:
    """Whether an item of the output is a call that OpenAI bills beside its tokens. A shell is where
    it runs in a container of theirs."""
    kind = item.get("type")
    if kind == "shell_call":
        return bool(mapping(item.get("environment")).get("container_id"))
    return kind in _BILLED


def usage_extra(value: Any) -> dict[str, Any]:
    """The fields of a usage object beyond TokenUsage."""
    usage = mapping(value)
    return rest(usage, _KNOWN) | unread_cost(usage)


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
        written["cost"] = usage.cost_nusd / NUSD_PER_USD
    return {**extra, **written}


def _part(usage: dict[str, Any], name: str) -> int:
    return as_tokens(usage.get(name)) or 0
