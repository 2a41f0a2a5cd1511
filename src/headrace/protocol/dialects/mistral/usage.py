"""What Mistral counts. Cached tokens are among the prompt's and have been told in three places."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import count, mapping
from headrace.protocol.neutral.usage import TokenUsage

_DETAILS = ("prompt_tokens_details", "prompt_token_details")


def read_usage(value: Any) -> TokenUsage | None:
    """None if nothing was counted. Thoughts are not told apart from other output."""
    usage = mapping(value)
    if "prompt_tokens" not in usage and "completion_tokens" not in usage:
        return None
    told = [mapping(usage.get(name)).get("cached_tokens") for name in _DETAILS]
    prompt = count(usage.get("prompt_tokens"))
    cached = min(max(count(one) for one in (*told, usage.get("num_cached_tokens"))), prompt)
    return TokenUsage(
        input_tokens=prompt - cached,
        cache_read_tokens=cached,
        input_audio_s=count(usage.get("prompt_audio_seconds")),
        output_tokens=count(usage.get("completion_tokens")),
    )
