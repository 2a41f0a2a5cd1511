"""What Mistral counts. Cached tokens are among the prompt's and have been told in three places."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping
from headrace.protocol.dialects.token_count import as_tokens, reported_tokens
from headrace.protocol.neutral.usage import TokenUsage

_AUDIO = "prompt_audio_seconds"
_DETAILS = ("prompt_tokens_details", "prompt_token_details")


def read_usage(value: Any) -> TokenUsage | None:
    """The usage; None if nothing plausible was counted. Thoughts are not counted separately."""
    usage = mapping(value)
    counts = reported_tokens(usage, "prompt_tokens", "completion_tokens")
    if counts is None:
        return None
    prompt, completion = counts
    # {} in place of null where nothing was heard, as in Mistral's own examples.
    told_s = usage.get(_AUDIO) or 0
    audio_s = as_tokens(told_s)
    if audio_s is None:
        return None
    told = [mapping(usage.get(name)).get("cached_tokens") for name in _DETAILS]
    told.append(usage.get("num_cached_tokens"))
    cached = min(max(as_tokens(tokens) or 0 for tokens in told), prompt)
    return TokenUsage(
        input_tokens=prompt - cached,
        cache_read_tokens=cached,
        input_audio_s=audio_s,
        output_tokens=completion,
    )
