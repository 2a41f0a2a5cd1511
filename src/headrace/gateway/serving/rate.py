"""Records how fast a target answered, for later routing."""

from __future__ import annotations

from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.tally import Tally

_S_PER_NS = 1e-9
# Shorter times reflect how the network cuts pieces, not the model.
_LEAST_S = 0.01


def note_opened(opened: Opened, now_s: float) -> None:
    """Record that its target has answered, and how soon."""
    health = opened.candidate.target.health
    health.succeeded(now_s)
    health.had_first_token((opened.first_ns - opened.sent_ns) * _S_PER_NS, now_s)


def note_rate(opened: Opened, tally: Tally, ended_ns: int) -> None:
    """Record the rate of tokens after the first, if the provider counted them."""
    usage, told = tally.usage
    lasted_s = (ended_ns - opened.first_ns) * _S_PER_NS
    tokens = usage.completion_tokens - 1
    if told == "provider" and lasted_s > _LEAST_S and tokens > 0:
        health = opened.candidate.target.health
        health.had_rate(tokens / lasted_s, ended_ns * _S_PER_NS)
