"""How long steps took and how much they did: the last one, all of them, and their histograms; what
the cache of experts did.
"""

from __future__ import annotations

from bisect import bisect_left

from headrace.models.cost import StepCost
from headrace.ops.experts import ExpertCacheStats
from headrace.telemetry.buckets import ITERATION_TOKENS, STEP_S


class StepFigures:
    """Counts of steps. seconds, tokens: how many steps took at most each bound, the rest last."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.last_tokens = 0
        self.last_cost = StepCost(0, 0)
        self.busy_s = 0.0
        self.limited_s = self.predicted_s = 0.0
        """Seconds of the steps that were cut short by time, and what was predicted of them."""
        self.moved_bytes = 0
        self.operations = 0
        self.seconds = [0] * (len(STEP_S) + 1)
        self.tokens = [0] * (len(ITERATION_TOKENS) + 1)

    def note(
        self, step_s: float, num_tokens: int, cost: StepCost, *, predicted_s: float = 0.0
    ) -> None:
        """Count a step that has been computed. predicted_s: of one cut short by time."""
        self.last_s = step_s
        self.last_tokens = num_tokens
        self.last_cost = cost
        self.busy_s += step_s
        if predicted_s:
            self.limited_s += step_s
            self.predicted_s += predicted_s
        self.moved_bytes += cost.bytes
        self.operations += cost.operations
        self.seconds[bisect_left(STEP_S, step_s)] += 1
        self.tokens[bisect_left(ITERATION_TOKENS, num_tokens)] += 1


def expert_counts(cache: ExpertCacheStats | None) -> dict[str, int]:
    """What Stats says of the cache of experts, by field; nothing where there is none."""
    if cache is None:
        return {}
    return {
        "expert_cache_hits": cache.hits,
        "expert_cache_misses": cache.misses,
        "expert_cache_read_bytes": cache.read_bytes,
        "expert_cache_held_bytes": cache.held_bytes,
    }
