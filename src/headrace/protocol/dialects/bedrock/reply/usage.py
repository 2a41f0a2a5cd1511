"""Bedrock's count of tokens. `inputTokens` has no cached ones, neither read nor written.

`cacheDetails` splits what was written by lifetime. Thoughts are counted among the output.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects
from headrace.protocol.dialects.token_count import as_tokens, reported_tokens, summed
from headrace.protocol.neutral.usage import TokenUsage

_INPUT = "inputTokens"
_OUTPUT = "outputTokens"
_CACHE_READ = "cacheReadInputTokens"
_CACHE_WRITE = "cacheWriteInputTokens"


def read_usage(value: Any) -> TokenUsage | None:
    """The usage; None if input or output is missing, or implausible: a wrong bill is worse than
    none. One-hour writes beyond the total of all writes are cut to that total; without a total, the
    split gives it."""
    usage = mapping(value)
    counts = reported_tokens(usage, _INPUT, _OUTPUT, _CACHE_READ, _CACHE_WRITE)
    if counts is None or usage.get(_INPUT) is None or usage.get(_OUTPUT) is None:
        return None
    fresh, output, read, written = counts
    details = objects(usage.get("cacheDetails"))
    split = summed(count(detail.get(_INPUT)) for detail in details)
    if details and split is None:
        return None
    if usage.get(_CACHE_WRITE) is None:
        written = split or 0
    of_an_hour = summed(
        count(detail.get(_INPUT)) for detail in details if detail.get("ttl") == "1h"
    )
    for_1h = min(of_an_hour or 0, written)
    return TokenUsage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=written - for_1h,
        cache_write_1h_tokens=for_1h,
        output_tokens=output,
    )


def count(value: Any) -> int | None:
    """A number of tokens, None if it is none."""
    return as_tokens(value)


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, else none."""
    return value if isinstance(value, list) else []
