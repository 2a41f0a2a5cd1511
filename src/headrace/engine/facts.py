"""What an engine is: the facts that it reports once it can serve, and that do not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.kv_sizes import most_held
from headrace.engine.limits import Limits
from headrace.engine.memory.kv_memory import CachePlan
from headrace.engine.messages import EngineInfo, KVGroup
from headrace.engine.model import Model
from headrace.ops.interface import Ops
from headrace.telemetry.machine import Machine


def info_of(
    model: Model,
    ops: Ops,
    plan: CachePlan,
    limits: Limits,
    *,
    kv: KVCache,
    machine: Machine | None,
    phases_s: Mapping[str, float],
    draft: DraftChain[Any] | None = None,
) -> EngineInfo:
    """The facts of an engine of these parts. machine: what was measured of this one, if it was."""
    codec = model.weight_codec
    measured = None
    if machine is not None and not ops.expert_layers:
        # Limits are those of one place: of two together none was measured.
        measured = machine.limits(ops.level, ops.num_threads, codec, plan.types)
    experts = ops.expert_cache_stats()
    return EngineInfo(
        model_type=model.model_type,
        vocab_size=model.vocab_size,
        max_model_len=plan.max_model_len,
        length_cause=limits.length_cause,
        block_size=plan.block_size,
        num_blocks=plan.num_blocks,
        pool_tokens=plan.pool_tokens,
        kv_cache_dtype=plan.types,
        backend=ops.name,
        cpu_level=ops.level,
        num_threads=ops.num_threads,
        weight_codec=codec,
        weight_bytes=model.weight_bytes,
        read_limit_bytes_per_s=None if measured is None else measured.bytes_per_s,
        compute_limit_ops_per_s=None if measured is None else measured.ops_per_s,
        compute_limit_kind=None if measured is None else measured.kind,
        attention_limit_ops_per_s=None if measured is None else measured.attention_ops_per_s,
        kv_bytes=plan.num_blocks * plan.block_bytes,
        phases_s=dict(phases_s),
        available_bytes=plan.available_bytes,
        kv_budget=plan.budget,
        kv_groups=_groups(kv),
        expert_cache_bytes=None if experts is None else experts.limit_bytes,
        cpu_expert_layers=ops.expert_layers,
        scheduling_policy=limits.scheduling_policy,
        draft_model_type="" if draft is None else draft.maker.model_type,
        draft_weight_bytes=0 if draft is None else draft.maker.weight_bytes,
        draft_kv_bytes=0 if draft is None else draft.plan.num_blocks * draft.plan.block_bytes,
    )


def _groups(kv: KVCache) -> list[KVGroup]:
    return [
        KVGroup(
            window=group.window,
            num_layers=len(group.layers),
            num_tables=group.num_tables,
            most_entries=most_held(group.window, kv.block_size, kv.max_step_tokens),
        )
        for group in kv.groups
    ]
