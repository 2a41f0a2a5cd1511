"""Models loaded to be measured, where the memory is checked first as `serve` checks it.

All of them are computed by one backend and held at a time. Experts that do not fit stay in their
mapped files, and one cache holds those that windows used last, of whichever model; logits are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.config.settings import EngineConfig
from headrace.engine.memory.device_memory import device_room
from headrace.engine.memory.expert_memory import PlannedModel
from headrace.engine.memory.expert_placement import plan_places
from headrace.engine.memory.kv_memory import kinds_of
from headrace.engine.memory.stored_shape import stored_shape
from headrace.errors import UnsupportedModelError
from headrace.eval.windows import BLOCK_TOKENS, PIECE_TOKENS
from headrace.models import Model, load_model, read_config
from headrace.ops import choose_backend, device_memory, make_ops
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint


class LoadedModels(NamedTuple):
    """Models and the backend that computes them."""

    ops: Ops
    models: tuple[Model, ...]


def load_models(
    checkpoints: Sequence[Checkpoint],
    settings: EngineConfig,
    context: int,
    available_bytes: int | None = None,
) -> LoadedModels:
    """The models of checkpoints, to be fed windows of `context` tokens.

    settings: of the backend, and the type of K and V. available_bytes: of memory; looked up when
    None. Raises ConfigError where they do not fit together, with what would.
    """
    choice = choose_backend(settings.backend, settings.device)
    settings = replace(settings, backend=choice.backend, device=choice.device)
    memory = device_memory(choice)
    device = None if memory is None else device_room(memory, settings.gpu_memory_utilization)
    planned = [
        PlannedModel(checkpoint, _of_windows(checkpoint, settings, context))
        for checkpoint in checkpoints
    ]
    weights = plan_places(planned, device, available_bytes)
    ops = make_ops(
        settings.backend,
        device=settings.device,
        cpu_level=settings.cpu_level,
        threads=settings.threads,
        expert_cache_bytes=weights.expert_cache_bytes,
        expert_layers=weights.cpu_layers,
    )
    return LoadedModels(ops, tuple(load_model(checkpoint, ops) for checkpoint in checkpoints))


def _of_windows(checkpoint: Checkpoint, settings: EngineConfig, context: int) -> EngineConfig:
    """The settings of an engine whose KV cache and steps are those of a `WindowRunner`."""
    try:
        config = read_config(checkpoint)
    except UnsupportedModelError:
        return settings  # loading says what is not supported
    entries = -(-min(context, config.max_positions) // BLOCK_TOKENS)
    shape = stored_shape(checkpoint, config)
    layout = shape.cache_layout.stored_as(kinds_of(settings, shape.weight_codec))
    return replace(
        settings,
        block_size=BLOCK_TOKENS,
        max_num_batched_tokens=PIECE_TOKENS,
        num_gpu_blocks_override=entries * layout.num_tables,
    )
