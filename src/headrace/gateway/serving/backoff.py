"""How long to wait before a target is asked again."""

from __future__ import annotations

import random

from headrace.gateway.settings.reliability import RetrySettings


def wait_s(
    settings: RetrySettings, tries: int, retry_after_s: float | None, source: random.Random
) -> float:
    """Doubling from `backoff_s`, a share of it by chance; at least what the provider asked for.

    tries: how often it was asked already, 1 and more. More than `backoff_most_s` is not waited,
    whoever asks for it: the caller gives up instead.
    """
    whole: float = min(settings.backoff_s * 2.0 ** (tries - 1), settings.backoff_most_s)
    drawn = whole * (1 - settings.jitter * source.random())
    return max(drawn, retry_after_s or 0.0)
