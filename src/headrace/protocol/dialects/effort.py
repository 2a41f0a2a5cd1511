"""How much to think in words, for APIs that have no number of tokens for it."""

from __future__ import annotations

from headrace.protocol.neutral.call import Effort

_LOW_TOKENS = 4096
_MEDIUM_TOKENS = 16384


def effort_of(budget_tokens: int) -> Effort:
    """The word that stands for a budget of thoughts."""
    if budget_tokens == 0:
        return "none"
    if budget_tokens <= _LOW_TOKENS:
        return "low"
    return "medium" if budget_tokens <= _MEDIUM_TOKENS else "high"
