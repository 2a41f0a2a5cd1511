"""What Cohere counts: `billed_units` are on the bill, `tokens` are what the model took and gave.

Its templates add to every prompt, which nobody pays for, and thoughts are billed as output at most.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping
from headrace.protocol.dialects.token_count import as_tokens, reported_tokens
from headrace.protocol.neutral.usage import TokenUsage


def read_usage(value: Any) -> TokenUsage | None:
    """The usage; None if nothing plausible was counted. Without billed_units the tokens are used
    instead.

    `cached_tokens` counts from the prompt's beginning, of billed and unbilled tokens alike. What is
    cached beyond all the unbilled ones is surely billed: so many are cache_read_tokens, and none
    where nobody knows how many are unbilled.
    """
    usage = mapping(value)
    billed = mapping(usage.get("billed_units"))
    tokens = mapping(usage.get("tokens"))
    lines = billed if "input_tokens" in billed or "output_tokens" in billed else tokens
    counts = reported_tokens(lines, "input_tokens", "output_tokens")
    if counts is None:
        return None
    read, written = counts
    taken = as_tokens(tokens.get("input_tokens"))
    cached = 0
    if taken is not None:
        unbilled = max(taken - read, 0)
        cached = min(max((as_tokens(usage.get("cached_tokens")) or 0) - unbilled, 0), read)
    return TokenUsage(
        input_tokens=read - cached,
        cache_read_tokens=cached,
        output_tokens=written,
    )
