"""How long to wait before a target is tried again."""

from __future__ import annotations

import random

from headrace.gateway.settings.reliability import RetrySettings
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.failure import Failure

# Timers fire a little early, and a key rests until the very end.
_LATE_S = 0.01


def wait_s(
    settings: RetrySettings, tries: int, retry_after_s: float | None, source: random.Random
) -> float:
    """A wait that doubles from `backoff_s`, part of it random; at least what the provider demands.

    `tries` is how often the target was tried, at least 1. The doubling stops at `backoff_max_s`;
    where a provider demands more, the caller gives up instead of waiting.
    """
    whole: float = min(settings.backoff_s * 2.0 ** (tries - 1), settings.backoff_max_s)
    drawn = whole * (1 - settings.jitter * source.random())
    return max(drawn, retry_after_s or 0.0)


def requested_wait_s(target: Target, failure: Failure, now_s: float) -> float:
    """How long to leave a target alone after a failure: as its provider demands, and until one of
    its keys may be used for the model again."""
    rests_s = target.provider.auth.rests_s(now_s, target.model)
    if rests_s > 0:
        rests_s += _LATE_S
        if failure.kind == "rate_limit":  # another key may have to wait less
            return rests_s
    return max(rests_s, failure.retry_after_s or 0.0)
