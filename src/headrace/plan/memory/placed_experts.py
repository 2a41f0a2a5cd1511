"""What `headrace serve` does with a model that a card does not hold, and holds without its experts.

Of a checkpoint on this disk the number of layers is the engine's own answer (`place_experts`),
given the memory and the KV cache of the plan. Of a model of which only shapes are known, experts
take their share of the weights by parameters, all layers with experts alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import PlannedModel
from headrace.engine.memory.expert_placement import place_experts
from headrace.engine.memory.kv_memory import REST_BYTES
from headrace.errors import ConfigError, UnsupportedModelError
from headrace.ops.placement import ALL_LAYERS
from headrace.plan.memory.memory import Load, MemoryPlan, Storage
from headrace.plan.model.model_shape import ModelShape


@dataclass(frozen=True)
class PlacedExperts:
    """The memory of a model some of whose experts are computed on the CPU beside a card."""

    layers: int
    """Layers, from the first on, whose experts are on the CPU: --n-cpu-moe."""
    all_layers: int
    """Of the model."""
    expert_bytes: int
    """Bytes of their experts, in this machine's memory or that of the card's."""
    host_bytes: int | None
    """Bytes usable there; None where that is not known, and then not checked."""

    @property
    def fits(self) -> bool:
        """Whether all of them are packed at load; otherwise a cache holds some, and the rest stays
        in the mapped file."""
        return self.host_bytes is None or self.expert_bytes <= self.host_bytes

    def as_dict(self) -> dict[str, int | bool | None]:
        """For JSON."""
        return {**asdict(self), "fits": self.fits}


def placed_experts(
    shape: ModelShape, storage: Storage, load: Load, plan: MemoryPlan, host_bytes: int | None
) -> PlacedExperts | None:
    """How many layers' experts have to go for the rest to fit on the plan's card.

    host_bytes: usable memory of the machine that the card is in; None where it is not known. None
    where nothing has to go or it does not help, and where it is not planned for: several devices, a
    plan on a CPU, a device whose memory is the CPU's as well.
    """
    place = plan.place
    if plan.fits or place.kind != "gpu" or place.is_unified or place.devices > 1 or not shape.moe:
        return None
    if shape.checkpoint is not None and storage.weights is None:
        found = _of_the_engine(shape, load, plan)
    else:
        found = _of_shapes(shape, plan)
    if found is None:
        return None
    layers, expert_bytes = found
    return PlacedExperts(min(layers, shape.num_layers), shape.num_layers, expert_bytes, host_bytes)


def _of_the_engine(shape: ModelShape, load: Load, plan: MemoryPlan) -> tuple[int, int] | None:
    """Layers and the bytes of their experts, packed."""
    assert shape.checkpoint is not None
    parts = {part.id: part.value for part in plan.components}
    # The engine counts its steps itself, by the shapes of its own operations.
    room = round(plan.usable.value - parts["runtime"]) + REST_BYTES
    config = EngineConfig(
        backend="torch",
        kv_cache_memory_bytes=max(1, round(parts["kv"])),
        max_num_batched_tokens=load.step_tokens,
        max_num_seqs=load.users,
    )
    try:
        placed = place_experts([PlannedModel(shape.checkpoint, config)], max(0, room), 1 << 62)
    except (ConfigError, UnsupportedModelError):
        return None
    if placed is None or placed.cpu_layers == ALL_LAYERS:
        return None
    return placed.cpu_layers, placed.expert_bytes


def _of_shapes(shape: ModelShape, plan: MemoryPlan) -> tuple[int, int] | None:
    """The same by parameters. Dense layers come first in models that have some of both."""
    counted = shape.parameters
    layers = sum(kind.count for kind in shape.moe)
    if not layers or not counted.experts:
        return None
    of_layer = plan.all_weights.value * counted.experts / counted.total / layers
    missing = plan.missing_bytes
    count = -(-int(missing) // max(1, int(of_layer)))
    if count > layers:
        return None
    return shape.num_layers - layers + count, round(count * of_layer)
