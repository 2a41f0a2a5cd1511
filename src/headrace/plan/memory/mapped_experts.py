"""What `headrace serve` does with a model whose dense parts fit and whose experts do not.

The size of the cache is the engine's own answer (`plan_weights`), given the memory and the KV cache
of the plan; nothing is estimated twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import plan_weights
from headrace.errors import ConfigError, UnsupportedModelError
from headrace.plan.memory.memory import Load, MemoryPlan, Storage
from headrace.plan.model.model_shape import ModelShape


@dataclass(frozen=True)
class MappedExperts:
    """The memory of a model whose experts stay in the mapped file, in bytes."""

    available_bytes: int
    """Of memory, for weights, KV cache and steps: what is usable less what the program takes."""
    kv_bytes: int
    """Of the KV cache, for the load that is planned."""
    dense_bytes: int
    """Of all weights but the experts that a router chooses from, packed."""
    scratch_bytes: int
    """Of the rows that a step hands to experts."""
    expert_bytes: int
    """Of all experts, packed."""
    cache_bytes: int
    """Of the experts that are held packed at a time."""

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return asdict(self)


def mapped_experts(
    shape: ModelShape, storage: Storage, load: Load, plan: MemoryPlan
) -> MappedExperts | None:
    """What the engine decides at load with the plan's memory and KV cache.

    None where it packs all experts or refuses the model, and where it is not planned for: models
    without a file on this disk, weights of another kind than the file's, graphics cards.
    """
    checkpoint = shape.checkpoint
    if checkpoint is None or storage.weights is not None or plan.place.kind != "cpu":
        return None
    parts = {part.id: part.value for part in plan.components}
    available = max(0, round(plan.usable.value - parts["runtime"]))
    kv_bytes = max(1, round(parts["kv"]))
    config = EngineConfig(
        kv_cache_memory_bytes=kv_bytes, max_num_batched_tokens=load.step_tokens, backend="cpu"
    )
    try:
        weights = plan_weights(checkpoint, config, available)
    except (ConfigError, UnsupportedModelError):
        return None
    if weights.expert_cache_bytes is None:
        return None
    return MappedExperts(
        available_bytes=available,
        kv_bytes=kv_bytes,
        dense_bytes=weights.dense_bytes,
        scratch_bytes=weights.scratch_bytes,
        expert_bytes=weights.expert_bytes,
        cache_bytes=weights.expert_cache_bytes,
    )
