"""Usage as OpenAI counts it: cached tokens inside of the prompt's, thoughts inside of the answer's.

What others do differently: DeepSeek names cached tokens `prompt_cache_hit_tokens`, Moonshot
`cached_tokens`; xAI counts thoughts in the total alone; Groq repeats it in `x_groq`.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_chat.values import (
    add_missing,
    left_over,
    mapping,
)
from headrace.protocol.dialects.reported_cost import reported_cost_nusd, unread_cost
from headrace.protocol.dialects.token_count import as_tokens, reported_tokens
from headrace.protocol.neutral.dollars import NUSD_PER_USD
from headrace.protocol.neutral.usage import TokenUsage

_KNOWN = frozenset(
    {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "cost",
    }
)
# What is billed beside tokens: searches of Perplexity, sources of xAI.
_BILLED = ("num_search_queries", "num_sources_used")
_KNOWN_PROMPT = frozenset({"cached_tokens", "audio_tokens", "cache_write_tokens"})
_KNOWN_COMPLETION = frozenset({"reasoning_tokens", "audio_tokens"})


def find_usage(body: dict[str, Any]) -> dict[str, Any]:
    """The usage object of a reply or of a chunk, wherever the server puts it; {} without one."""
    usage = body.get("usage")
    if not usage and "x_groq" in body:
        usage = mapping(body["x_groq"]).get("usage")
    if not usage:
        choices = body.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            usage = choices[0].get("usage")  # Moonshot
    return mapping(usage)


def read_usage(usage: dict[str, Any], *, gap_is_thoughts: bool = False) -> TokenUsage | None:
    """Lines that do not overlap, None if nothing is counted, or nothing that can be believed.

    A part that is said to be more than its whole is cut to it. gap_is_thoughts: what the total has
    beyond prompt and completion was thought (Google's endpoint in OpenAI's format).
    """
    counts = reported_tokens(usage, "prompt_tokens", "completion_tokens")
    if counts is None:
        return None
    prompt, completion = counts
    read = mapping(usage.get("prompt_tokens_details"))
    wrote = mapping(usage.get("completion_tokens_details"))
    cached = min(
        _part(read, "cached_tokens")
        or _part(usage, "prompt_cache_hit_tokens")
        or _part(usage, "cached_tokens"),
        prompt,
    )
    cache_write = min(_part(read, "cache_write_tokens"), prompt - cached)
    audio_in = min(_part(read, "audio_tokens"), prompt - cached - cache_write)
    reasoning = _part(wrote, "reasoning_tokens") or _part(usage, "reasoning_tokens")
    gap = _part(usage, "total_tokens") - prompt - completion
    if gap > 0 and (gap == reasoning or (gap_is_thoughts and reasoning == 0)):
        reasoning, output = gap, completion
    else:
        reasoning = min(reasoning, completion)
        output = completion - reasoning
    audio_out = min(_part(wrote, "audio_tokens"), output)
    return TokenUsage(
        input_tokens=prompt - cached - cache_write - audio_in,
        cache_read_tokens=cached,
        cache_write_tokens=cache_write,
        input_audio_tokens=audio_in,
        output_tokens=output - audio_out,
        reasoning_tokens=reasoning,
        output_audio_tokens=audio_out,
        cost_nusd=reported_cost_nusd(usage),
        is_incomplete=any(_part(usage, name) for name in _BILLED),
    )


def _part(told: dict[str, Any], name: str) -> int:
    return as_tokens(told.get(name)) or 0


def usage_extra(usage: dict[str, Any]) -> dict[str, Any]:
    """The fields of a usage object beyond TokenUsage, to be written back by `write_usage`."""
    extra = left_over(usage, _KNOWN)
    for name, known in (
        ("prompt_tokens_details", _KNOWN_PROMPT),
        ("completion_tokens_details", _KNOWN_COMPLETION),
    ):
        details = left_over(mapping(usage.get(name)), known)
        if details:
            extra[name] = details
    return extra | unread_cost(usage)


def write_usage(usage: TokenUsage, extra: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's usage object; totals are sums of what is billed."""
    read = {"cached_tokens": usage.cache_read_tokens, "audio_tokens": usage.input_audio_tokens}
    cache_write = usage.cache_write_tokens + usage.cache_write_1h_tokens
    if cache_write:
        read["cache_write_tokens"] = cache_write
    written: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": read,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": usage.output_audio_tokens,
        },
    }
    if usage.cost_nusd is not None and "cost" not in extra:
        written["cost"] = usage.cost_nusd / NUSD_PER_USD
    add_missing(written, extra)
    return written
