"""Usage in both directions: input_tokens leave out what was read from or written to the cache.

Tokens of thoughts are part of output_tokens; how many they were, only newer models say
(output_tokens_details.thinking_tokens). A stream tells usage twice, and the last one counts: its
numbers are of the whole answer. They leave out what was read and written to make a conversation
shorter (`iterations` of the type "compaction"), which is billed as well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.anthropic.values import NAME, count, mapping, rest, text
from headrace.protocol.dialects.token_count import reported_tokens
from headrace.protocol.neutral.usage import TokenUsage

_INPUT = "input_tokens"
_OUTPUT = "output_tokens"
_READ = "cache_read_input_tokens"
_WRITE = "cache_creation_input_tokens"
_SPLIT = "cache_creation"
_WRITE_5M = "ephemeral_5m_input_tokens"
_WRITE_1H = "ephemeral_1h_input_tokens"
_DETAILS = "output_tokens_details"
_THOUGHTS = "thinking_tokens"
_TIER = "service_tier"
_KNOWN = frozenset({_INPUT, _OUTPUT, _READ, _WRITE, _SPLIT, _DETAILS, _TIER})

_ITERATIONS = "iterations"
# Of the model that was asked; others (an advisor's) have a price of their own.
_OF_MODEL = ("message", "compaction")
_SPEED, _PLACE, _SERVER_TOOLS = "speed", "inference_geo", "server_tool_use"
# At the prices of the list; "us" is dearer, as is the speed "fast".
_USUAL_PLACES = (None, "", "not_available", "global")
_USUAL_SPEEDS = (None, "", "standard")
# Calls of tools that cost nothing beside their tokens.
_FREE_CALLS = frozenset({"web_fetch_requests", "tool_search_requests"})
_FREE_TOOLS = ("web_fetch", "tool_search")

# Clients look for these in the first event of a stream, which has no other place for them.
_AT_START = ("inference_geo", "service_tier", "speed")

# OpenAI's word for what Anthropic calls standard; the others are the same or unknown here.
_TIERS = {"default": "standard", "standard": "standard", "priority": "priority", "batch": "batch"}


def read_usage(value: object) -> TokenUsage | None:
    """The usage; None if it is missing or implausible. One-hour writes beyond the total of all
    writes are cut to that total."""
    usage = mapping(value)
    found = _read_numbers(usage)
    if found is None:
        return None
    is_incomplete = _is_incomplete(usage)
    iterations = usage.get(_ITERATIONS)
    for iteration in map(mapping, iterations if isinstance(iterations, list) else ()):
        if _is_summed(iteration) and (more := _read_numbers(iteration)) is not None:
            found = _sum(found, more)
        is_incomplete = is_incomplete or iteration.get("type") not in _OF_MODEL
    return msgspec.structs.replace(found, is_incomplete=True) if is_incomplete else found


def _is_summed(iteration: dict[str, Any]) -> bool:
    """Whether the numbers of the whole leave it out."""
    return iteration.get("type") == "compaction"


def _read_numbers(usage: dict[str, Any]) -> TokenUsage | None:
    """The numbers of a usage object, or of an iteration in it."""
    if reported_tokens(usage, _INPUT, _OUTPUT) is None:
        return None
    split = mapping(usage.get(_SPLIT))
    told = usage | {name: split.get(name) for name in (_WRITE_5M, _WRITE_1H)}
    counts = reported_tokens(told, _INPUT, _OUTPUT, _READ, _WRITE, _WRITE_5M, _WRITE_1H)
    if counts is None:
        return None
    fresh, output, read, written, for_5m, for_1h = counts
    if usage.get(_WRITE) is not None:
        for_1h = min(for_1h, written)
        for_5m = written - for_1h
    thoughts = count(mapping(usage.get(_DETAILS)).get(_THOUGHTS)) or 0
    return TokenUsage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=for_5m,
        cache_write_1h_tokens=for_1h,
        output_tokens=output - min(thoughts, output),
        reasoning_tokens=min(thoughts, output),
    )


def _sum(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    return TokenUsage(
        input_tokens=one.input_tokens + other.input_tokens,
        cache_read_tokens=one.cache_read_tokens + other.cache_read_tokens,
        cache_write_tokens=one.cache_write_tokens + other.cache_write_tokens,
        cache_write_1h_tokens=one.cache_write_1h_tokens + other.cache_write_1h_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
    )


def _is_incomplete(usage: dict[str, Any]) -> bool:
    """Whether it tells of something that the prices of tokens do not cover."""
    if usage.get(_SPEED) not in _USUAL_SPEEDS or usage.get(_PLACE) not in _USUAL_PLACES:
        return True
    calls = mapping(usage.get(_SERVER_TOOLS))
    return any(count(told) for name, told in calls.items() if name not in _FREE_CALLS)


def is_billed(block: dict[str, Any]) -> bool:
    """Whether a block of an answer is a call that is billed beside its tokens."""
    name = text(block.get("name"))
    return block.get("type") == "server_tool_use" and not name.startswith(_FREE_TOOLS)


def merged_usage(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """One usage made of the reports at a stream's start and at its end.

    The end leaves out how writes to the cache are split. If it tells of more of them than the start
    did, the rest are taken to live as long as those before.
    """
    merged = first | {key: value for key, value in last.items() if value is not None}
    written, before = count(merged.get(_WRITE)), mapping(first.get(_SPLIT))
    unsplit = _SPLIT not in last and written and count(before.get(_WRITE_1H))
    if unsplit and not count(before.get(_WRITE_5M)):
        merged[_SPLIT] = {_WRITE_5M: 0, _WRITE_1H: written}
    return merged


def start_extra(usage: dict[str, Any]) -> dict[str, Any]:
    """`extra` of a reply or its beginning: what a usage says of where and how it ran."""
    kept = {name: usage[name] for name in _AT_START if usage.get(name) is not None}
    return {NAME: {"usage": kept}} if kept else {}


def usage_at_start(extra: dict[str, Any]) -> dict[str, Any]:
    """The fields of usage that `start_extra` kept."""
    return mapping(mapping(extra.get(NAME)).get("usage"))


def unread_usage(usage: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
    """Its fields without a neutral form that were not reported at the start: calls of server tools,
    and those iterations that its numbers do not include."""
    unread = rest(usage, _KNOWN | usage_at_start(start).keys())
    iterations = unread.get(_ITERATIONS)
    if isinstance(iterations, list):
        unread[_ITERATIONS] = [
            iteration for iteration in iterations if not _is_summed(mapping(iteration))
        ]
    return unread


def read_tier(value: object) -> str | None:
    """The service tier that answered."""
    return text(mapping(value).get(_TIER)) or None


def write_usage(
    usage: TokenUsage | None, tier: str | None = None, more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The usage of a reply; clients need its counts, so they are 0 where nothing is known."""
    usage = usage or TokenUsage()
    written: dict[str, Any] = {
        _INPUT: usage.input_tokens + usage.input_audio_tokens,
        _WRITE: usage.cache_write_tokens + usage.cache_write_1h_tokens,
        _READ: usage.cache_read_tokens,
        _SPLIT: {_WRITE_5M: usage.cache_write_tokens, _WRITE_1H: usage.cache_write_1h_tokens},
        _OUTPUT: usage.completion_tokens,
        _DETAILS: {_THOUGHTS: usage.reasoning_tokens},
    }
    if (word := _TIERS.get(tier or "")) is not None:
        written[_TIER] = word
    return written | (more or {})
