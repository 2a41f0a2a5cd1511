"""What of a checkpoint would fit on this machine, told from its headers: no weight is read.

The arithmetic is that of loading (`weight_memory`, `expert_memory`, `kv_memory`) on what the config
says, less what the copies of the weights will take.
"""

from __future__ import annotations

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.memory.available import available_memory_bytes
from headrace.engine.memory.expert_memory import plan_weights
from headrace.engine.memory.kv_memory import (
    REST_BYTES,
    blocks_of_request,
    plan_kv_cache,
)
from headrace.engine.memory.stored_shape import stored_shape
from headrace.engine.memory.weight_memory import copied_bytes
from headrace.errors import ConfigError, UnsupportedModelError
from headrace.models import read_config
from headrace.ops.kv import KVCodec
from headrace.weights.checkpoint import Checkpoint


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that fit with the default settings."""

    kv_cache_dtype: str
    token_bytes: int
    """Of KV cache, for a token of one request."""
    max_model_len: int
    """The model's own."""
    available_bytes: int
    """Of memory, now."""
    weights_bytes: int
    """Of them that loading takes, a cache of experts included."""
    default_tokens: int = 0
    """The longest request with the default size of the KV cache."""
    most_tokens: int = 0
    """With kv_cache_memory_bytes, which is what that length takes of the memory that is left. All
    three are 0 where not even the weights fit; problem says so in words, "" otherwise."""
    kv_cache_memory_bytes: int = 0
    expert_bytes: int = 0
    """Of the experts that a router chooses from, packed; 0 for a model without."""
    expert_cache_bytes: int | None = None
    """Of the cache that holds some of them at a time; None where all are packed at load."""
    problem: str = ""


def fit(checkpoint: Checkpoint, available_bytes: int | None = None) -> Fit | None:
    """What would fit of a checkpoint; None for a model that is not implemented.

    available_bytes: of memory; looked up when None. Raises ConfigError where that cannot be told.
    """
    try:
        shape = stored_shape(checkpoint, read_config(checkpoint))
    except UnsupportedModelError:
        return None
    layout = shape.cache_layout
    available = available_memory_bytes() if available_bytes is None else available_bytes
    config = EngineConfig()
    weights = copied_bytes(checkpoint)
    codec: KVCodec = "f32" if shape.weight_codec == "F32" else "bf16"
    facts = Fit(
        kv_cache_dtype=codec,
        token_bytes=layout.num_tables * layout.spec(1, 1, codec, codec).block_bytes,
        max_model_len=shape.max_positions,
        available_bytes=available,
        weights_bytes=weights,
    )
    try:
        planned = plan_weights(checkpoint, config, available)
        weights, reserved = planned.loaded_bytes or weights, planned.reserved_bytes
        left = max(0, available - weights - REST_BYTES)
        facts = msgspec.structs.replace(
            facts,
            weights_bytes=weights + (planned.expert_cache_bytes or 0),
            expert_bytes=planned.expert_bytes,
            expert_cache_bytes=planned.expert_cache_bytes,
        )
        plan = plan_kv_cache(shape, config, left, reserved)
    except ConfigError as error:
        return msgspec.structs.replace(facts, problem=str(error))
    longest = plan_kv_cache(shape, _with_bytes(config, left - reserved), left, reserved)
    blocks = min(longest.num_blocks, blocks_of_request(layout, config, longest.max_model_len))
    return msgspec.structs.replace(
        facts,
        default_tokens=plan.max_model_len,
        most_tokens=longest.max_model_len,
        kv_cache_memory_bytes=blocks * longest.block_bytes,
    )


def _with_bytes(config: EngineConfig, num_bytes: int) -> EngineConfig:
    return msgspec.structs.replace(config, kv_cache_memory_bytes=num_bytes)
