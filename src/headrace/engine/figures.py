"""How long steps took and how much they did: the last one, all of them, and their histograms; and
all figures of an engine as a message.
"""

from __future__ import annotations

from bisect import bisect_left

from headrace.engine.drafts.speculation import DraftTotals, Speculation
from headrace.engine.messages import Stats
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.models.cost import StepCost
from headrace.ops.experts import ExpertCacheStats
from headrace.telemetry.buckets import ITERATION_TOKENS, STEP_S


class StepFigures:
    """Counts of steps. seconds, tokens: how many steps took at most each bound, the rest last."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self.last_tokens = 0
        self.last_cost = StepCost(0, 0, 0)
        self.busy_s = 0.0
        self.limited_s = self.predicted_s = 0.0
        """Seconds of the steps that were cut short by time, and what was predicted of them."""
        self.moved_bytes = 0
        self.operations = 0
        self.attention_operations = 0
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
        self.attention_operations += cost.attention_operations
        self.seconds[bisect_left(STEP_S, step_s)] += 1
        self.tokens[bisect_left(ITERATION_TOKENS, num_tokens)] += 1


def stats_of(
    scheduler: Scheduler,
    steps: StepFigures,
    *,
    speculation: Speculation | None,
    num_compiling: int,
    draft_failures: int,
    failed_steps: int,
    out_of_memory_steps: int,
    kv_accounting_errors: int,
    experts: ExpertCacheStats | None,
) -> Stats:
    """The figures of an engine as of now. num_compiling: requests whose grammar is not ready, which
    wait outside of the queue. draft_failures: requests that the draft model gave nothing usable
    for. experts: of their cache, where there is one."""
    kv, totals = scheduler.kv, scheduler.totals
    compared = DraftTotals() if speculation is None else speculation.compared
    return Stats(
        num_running=len(scheduler.running),
        num_waiting=len(scheduler.waiting) + num_compiling,
        blocks_total=kv.num_blocks,
        blocks_free=kv.num_free,
        blocks_cached=kv.num_cached,
        blocks_owned=kv.num_owned,
        group_blocks=kv.owned_by_group,
        group_cached=kv.cached_by_group,
        steps=totals.steps,
        step_s=steps.last_s,
        step_tokens=steps.last_tokens,
        step_bytes=steps.last_cost.bytes,
        step_operations=steps.last_cost.operations,
        step_attention_operations=steps.last_cost.attention_operations,
        busy_s=steps.busy_s,
        limited_steps=totals.limited_steps,
        limited_step_s=steps.limited_s,
        limited_step_predicted_s=steps.predicted_s,
        moved_bytes=steps.moved_bytes,
        operations=steps.operations,
        attention_operations=steps.attention_operations,
        prompt_tokens=totals.prompt_tokens,
        generation_tokens=totals.generation_tokens,
        computed_tokens=totals.computed_tokens,
        certain_tokens=totals.certain_tokens,
        spec_drafts=totals.drafts,
        spec_draft_tokens=totals.draft_tokens,
        spec_accepted_tokens=totals.accepted_tokens,
        spec_draft_failures=draft_failures,
        spec_accepted_by_position=dict(totals.accepted_by_position),
        spec_compared_steps=compared.steps,
        spec_compared_tokens=compared.tokens,
        spec_compared_s=compared.seconds,
        spec_plain_s=compared.plain_s,
        prefix_queries_tokens=totals.prefix_queries_tokens,
        prefix_hits_tokens=totals.prefix_hits_tokens,
        num_preemptions=totals.preemptions.total(),
        preemption_reasons={**totals.preemptions},
        timeouts=totals.timeouts,
        step_seconds=list(steps.seconds),
        iteration_tokens=list(steps.tokens),
        num_deferred=scheduler.num_deferred,
        num_preempted=scheduler.waiting.num_put_back,
        miss_reasons=dict(totals.miss_reasons),
        failed_steps=failed_steps,
        out_of_memory_steps=out_of_memory_steps,
        kv_accounting_errors=kv_accounting_errors,
        **_expert_counts(experts),
    )


def _expert_counts(cache: ExpertCacheStats | None) -> dict[str, int]:
    """What Stats says of the cache of experts, by field; nothing where there is none."""
    if cache is None:
        return {}
    return {
        "expert_cache_hits": cache.hits,
        "expert_cache_misses": cache.misses,
        "expert_cache_read_bytes": cache.read_bytes,
        "expert_cache_held_bytes": cache.held_bytes,
    }
