"""Gemini's count of tokens as neutral lines that do not overlap.

    promptTokenCount         all that was sent, with what came from the cache
    cachedContentTokenCount  the part of it that came from the cache
    toolUsePromptTokenCount  what Google's own tools read, beside the prompt: billed as input
    candidatesTokenCount     the answer, without the thoughts
    thoughtsTokenCount       the thoughts, beside the answer
    totalTokenCount          the sum of all but the cached line

Audio is found in the details by modality; pictures are billed as tokens and stay in their line.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import objects, text
from headrace.protocol.dialects.token_count import as_tokens, reported_tokens
from headrace.protocol.neutral.usage import TokenUsage

_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
)
_TIERS = {
    "standard": "default",
    "on_demand": "default",
    "on_demand_flex": "flex",
    "on_demand_priority": "priority",
}


def usage_of(told: dict[str, Any]) -> TokenUsage | None:
    """The lines of a usageMetadata; None if it counts nothing that can be believed.
    Protocol buffers write 64-bit numbers as text."""
    counts = reported_tokens(told, *_COUNTS, or_text=True)
    if counts is None:
        return None
    prompt, tool, written, thoughts = counts
    cached = min(as_tokens(told.get("cachedContentTokenCount"), or_text=True) or 0, prompt)
    heard = _audio(told, "promptTokensDetails") - _audio(told, "cacheTokensDetails")
    audio = min(max(heard, 0), prompt - cached)
    tool_audio = min(_audio(told, "toolUsePromptTokensDetails"), tool)
    spoken = min(_audio(told, "candidatesTokensDetails"), written)
    return TokenUsage(
        input_tokens=prompt - cached - audio + tool - tool_audio,
        cache_read_tokens=cached,
        input_audio_tokens=audio + tool_audio,
        output_tokens=written - spoken,
        reasoning_tokens=thoughts,
        output_audio_tokens=spoken,
    )


def service_tier_of(told: dict[str, Any]) -> str | None:
    """The tier in OpenAI's words; Vertex AI calls it trafficType, the Gemini API serviceTier."""
    tier = (text(told.get("serviceTier")) or text(told.get("trafficType"))).lower()
    return _TIERS.get(tier, tier) or None


def _audio(told: dict[str, Any], name: str) -> int:
    return sum(
        as_tokens(detail.get("tokenCount"), or_text=True) or 0
        for detail in objects(told.get(name))
        if detail.get("modality") == "AUDIO"
    )
