"""What Cohere counts: `billed_units` are on the bill, `tokens` are what the model took and gave.

Its templates add to every prompt, which nobody pays for, and thoughts are billed as output at most.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import count, mapping
from headrace.protocol.neutral.usage import TokenUsage


def read_usage(value: Any) -> TokenUsage | None:
    """None if nothing was counted. Without billed_units the tokens are taken for them.

    `cached_tokens` counts from the prompt's beginning, of billed and unbilled tokens alike. What is
    cached beyond all the unbilled ones is surely billed: so many are cache_read_tokens.
    """
    usage = mapping(value)
    billed = mapping(usage.get("billed_units"))
    tokens = mapping(usage.get("tokens"))
    if not billed and not tokens:
        return None
    lines = billed if "input_tokens" in billed or "output_tokens" in billed else tokens
    read = count(lines.get("input_tokens"))
    unbilled = max(count(tokens.get("input_tokens")) - read, 0)
    cached = min(max(count(usage.get("cached_tokens")) - unbilled, 0), read)
    return TokenUsage(
        input_tokens=read - cached,
        cache_read_tokens=cached,
        output_tokens=count(lines.get("output_tokens")),
    )
