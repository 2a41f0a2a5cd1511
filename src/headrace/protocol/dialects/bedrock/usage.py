"""Bedrock's count of tokens. `inputTokens` has no cached ones, neither read nor written.

`cacheDetails` splits what was written by lifetime. Thoughts are counted among the output.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.token_count import as_tokens
from headrace.protocol.neutral.usage import TokenUsage


def read_usage(value: Any) -> TokenUsage | None:
    """None if it does not tell input and output: a wrong bill is worse than none."""
    if not isinstance(value, dict):
        return None
    read = count(value.get("inputTokens"))
    written = count(value.get("outputTokens"))
    if read is None or written is None:
        return None
    cached_1h = sum(
        count(one.get("inputTokens")) or 0
        for one in as_list(value.get("cacheDetails"))
        if isinstance(one, dict) and one.get("ttl") == "1h"
    )
    cached = count(value.get("cacheWriteInputTokens")) or 0
    return TokenUsage(
        input_tokens=read,
        cache_read_tokens=count(value.get("cacheReadInputTokens")) or 0,
        cache_write_tokens=max(0, cached - cached_1h),
        cache_write_1h_tokens=cached_1h,
        output_tokens=written,
    )


def count(value: Any) -> int | None:
    """A number of tokens, None if it is none."""
    return as_tokens(value)


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else none."""
    return value if isinstance(value, list) else []
