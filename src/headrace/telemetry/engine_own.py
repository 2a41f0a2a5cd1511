"""What an engine says of itself under names of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from headrace.telemetry import buckets
from headrace.telemetry.engine_reports import EngineCounts, EngineFacts
from headrace.telemetry.families import Families
from headrace.telemetry.work import Work

if TYPE_CHECKING:
    from headrace.telemetry.engine_collector import Now


def families(
    make: Families,
    facts: EngineFacts,
    counts: EngineCounts,
    now: Now,
    *,
    alive: bool,
    version: str,
) -> Iterator[Metric]:
    """Every family, in a fixed order."""
    yield make.gauge("headrace:engine_up", "1 while the engine's loop runs, 0 after.", alive)
    yield from _facts(make, facts, version)
    yield make.gauges(
        "headrace:kv_blocks",
        "KV blocks by state; free, cached and owned add up to total.",
        "state",
        {
            "free": now.blocks_free,
            "cached": now.blocks_cached,
            "owned": now.blocks_owned,
            "total": now.blocks_total,
        },
    )
    yield make.gauges(
        "headrace:kv_group_blocks",
        "KV blocks that running requests own, by group of layers.",
        "group",
        {name: blocks if alive else 0 for name, blocks in counts.group_blocks.items()},
    )
    yield make.gauges(
        "headrace:kv_group_cached_blocks",
        "KV blocks that the prefix cache keeps and no request holds, by group of layers.",
        "group",
        {name: blocks if alive else 0 for name, blocks in counts.group_cached.items()},
    )
    yield make.gauge("headrace:last_step_seconds", "Seconds the last step took.", now.step_s)
    yield make.gauge("headrace:last_step_tokens", "Tokens the last step computed.", now.step_tokens)
    yield from _roofline(make, facts, now)
    yield from _steps(make, counts)
    yield from _events(make, counts)
    if facts.expert_cache_bytes is not None:
        yield from _experts(make, facts.expert_cache_bytes, counts, now)


def _facts(make: Families, facts: EngineFacts, version: str) -> Iterator[Metric]:
    yield make.gauge(
        "headrace:engine_info",
        "Model and version that run, as labels.",
        1,
        version=version,
        model_type=facts.model_type,
        backend=facts.backend,
        cpu_level=facts.cpu_level,
        threads=str(facts.num_threads),
        weight_codec=facts.weight_codec,
    )
    yield make.gauge("headrace:weight_bytes", "Bytes of weights.", facts.weight_bytes)
    yield make.gauge("headrace:kv_cache_bytes", "Bytes of the KV cache.", facts.kv_bytes)
    yield make.gauges(
        "headrace:load_seconds", "Seconds that each phase of loading took.", "phase", facts.phases_s
    )


def _roofline(make: Families, facts: EngineFacts, now: Now) -> Iterator[Metric]:
    """Limits, and shares of the last step. Absent, not 0, where limit or step is not known."""
    work = Work(now.step_bytes, now.step_operations, now.step_attention_operations)
    read, compute = facts.read_limit_bytes_per_s, facts.compute_limit_ops_per_s
    attention = facts.attention_limit_ops_per_s
    for name, what, limit in (
        ("read_limit_bytes_per_second", "memory bandwidth", read),
        ("compute_limit_operations_per_second", "multiply rate of products", compute),
        ("attention_limit_operations_per_second", "multiply rate of attention", attention),
    ):
        if limit:
            text = f"This machine's {what}, as measured."
            yield make.gauge(f"headrace:{name}", text, limit)
    if now.step_s and read and work.bytes:
        text = "Share of this machine's memory bandwidth that the last step reached."
        yield make.gauge("headrace:last_step_mbu", text, work.bytes / now.step_s / read)
    if now.step_s and compute and work.operations:
        text = "Share of this machine's multiply rates that the last step reached."
        share = work.computing_s(compute, attention) / now.step_s
        yield make.gauge("headrace:last_step_mfu", text, share)


def _steps(make: Families, counts: EngineCounts) -> Iterator[Metric]:
    yield make.counter("headrace:engine_steps", "Steps that the engine has run.", counts.steps)
    yield make.histogram(
        "headrace:step_seconds",
        "Seconds per step.",
        buckets.STEP_S,
        counts.step_seconds,
        counts.busy_s,
    )
    yield make.counter(
        "headrace:limited_steps",
        "Steps that computed less of a prompt than they had tokens for, to end in time.",
        counts.limited_steps,
    )
    yield make.counter(
        "headrace:limited_step_seconds",
        "Seconds that those steps took.",
        counts.limited_step_s,
    )
    yield make.counter(
        "headrace:limited_step_predicted_seconds",
        "Seconds that those steps were predicted to take.",
        counts.limited_step_predicted_s,
    )
    yield make.counter(
        "headrace:computed_tokens",
        "Tokens computed: prompts without cache hits, output, and recomputation.",
        counts.computed_tokens,
    )
    yield make.counter(
        "headrace:certain_tokens",
        "Generated tokens that a grammar or a thinking budget left no choice of.",
        counts.certain_tokens,
    )
    yield make.counter(
        "headrace:step_bytes",
        "Bytes that steps moved: weights, and K and V read and written.",
        counts.moved_bytes,
    )
    yield make.counter(
        "headrace:step_operations",
        "Multiplications and additions of matrix products and attention.",
        counts.operations,
    )
    yield make.counter(
        "headrace:step_attention_operations",
        "Multiplications and additions of attention, which are among headrace:step_operations.",
        counts.attention_operations,
    )
    yield make.counter(
        "headrace:failed_steps",
        "Steps whose batch failed and was run again request by request.",
        counts.failed_steps,
    )
    yield make.counter(
        "headrace:out_of_memory_steps",
        "Times that a step found too little memory and was computed in halves or put off.",
        counts.out_of_memory_steps,
    )
    yield make.counter(
        "headrace:spec_decode_compared_steps",
        "Steps with drafts whose time was compared with that of one without.",
        counts.spec_compared_steps,
    )
    yield make.counter(
        "headrace:spec_decode_compared_tokens",
        "Tokens that those steps gave, of a request on average.",
        counts.spec_compared_tokens,
    )
    yield make.counter(
        "headrace:spec_decode_compared_seconds",
        "Seconds that those steps took, with making drafts.",
        counts.spec_compared_s,
    )
    yield make.counter(
        "headrace:spec_decode_plain_seconds",
        "Seconds that as many steps without drafts take, as such steps did lately.",
        counts.spec_plain_s,
    )
    yield make.counter(
        "headrace:spec_decode_draft_failures",
        "Requests for which a draft model gave nothing usable, and which went on without it.",
        counts.spec_draft_failures,
    )


def _events(make: Families, counts: EngineCounts) -> Iterator[Metric]:
    yield make.counters(
        "headrace:prefix_cache_misses",
        "Requests whose prompt was not wholly cached, by reason.",
        "reason",
        counts.miss_reasons,
    )
    yield make.counters(
        "headrace:preemptions",
        "Preemptions by reason: blocks ran out, or a request of higher priority took the place.",
        "reason",
        {"blocks": 0, "priority": 0} | dict(counts.preemption_reasons),
    )
    yield make.counter(
        "headrace:request_timeouts",
        "Requests that ended at their timeout.",
        counts.timeouts,
    )
    yield make.counter(
        "headrace:kv_accounting_errors",
        "Times that the KV block counts were inconsistent when the engine became idle.",
        counts.kv_accounting_errors,
    )


def _experts(make: Families, limit: int, counts: EngineCounts, now: Now) -> Iterator[Metric]:
    """Of the cache of experts; absent where all experts are packed at load."""
    yield make.gauges(
        "headrace:expert_cache_bytes",
        "Memory of packed experts by state: held now, and the limit.",
        "state",
        {"held": now.expert_cache_held_bytes, "limit": limit},
    )
    yield make.counter(
        "headrace:expert_cache_hits",
        "Matrices of experts that were packed already when a step needed them.",
        counts.expert_cache_hits,
    )
    yield make.counter(
        "headrace:expert_cache_misses",
        "Matrices of experts that had to be read and packed first.",
        counts.expert_cache_misses,
    )
    yield make.counter(
        "headrace:expert_cache_read_bytes",
        "Stored bytes of the experts that had to be read.",
        counts.expert_cache_read_bytes,
    )
