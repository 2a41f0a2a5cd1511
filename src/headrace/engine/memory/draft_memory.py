"""How large the pool of a draft model's K and V is, beside that of its target.

It holds as many tokens as the target's, or the longest requests of max_num_seqs where these are
fewer. It comes out of what the target's weights and K and V leave; where that is too little, it is
smaller, and of the requests that run together some have no drafts.
"""

from __future__ import annotations

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.memory.kv_memory import (
    MIB,
    UNKNOWN_BYTES,
    CachePlan,
    CacheShape,
    block_bytes_of,
    blocks_of_request,
    kinds_of,
    plan_kv_cache,
)
from headrace.errors import ConfigError


def plan_draft_cache(
    draft: CacheShape,
    config: EngineConfig,
    target: CachePlan,
    *,
    reserved_bytes: int,
    max_step_tokens: int,
) -> CachePlan:
    """The size of the draft's own pool.

    reserved_bytes: of what was available when the target's was sized, what steps take besides.
    max_step_tokens: of a request that the draft computes at a time. Raises ConfigError where there
    is no room for one request.
    """
    length = min(target.max_model_len, draft.max_positions)
    own = msgspec.structs.replace(
        config,
        max_model_len=length,
        max_num_batched_tokens=max_step_tokens,
        kv_cache_memory_bytes=None,
    )
    if not any(group.window for group in draft.cache_layout.groups):
        # What the target's layers with a window are stored in is nothing to a draft without any.
        own = msgspec.structs.replace(
            own, kv_cache_dtype_sliding="auto", kv_cache_dtype_sliding_v="auto"
        )
    kinds = kinds_of(own, draft.weight_codec)
    layout = draft.cache_layout.stored_as(kinds)
    block_bytes = block_bytes_of(layout, kinds, own)
    for_one = blocks_of_request(layout, own, length)
    like_target = -(-target.num_blocks // target.layout.num_tables) * layout.num_tables
    wanted = max(for_one, min(config.max_num_seqs * for_one, like_target))
    left = UNKNOWN_BYTES
    if target.available_bytes:
        taken = target.num_blocks * target.block_bytes + reserved_bytes
        left = max(0, target.available_bytes - taken)
    num_blocks = min(wanted, left // block_bytes)
    if num_blocks < for_one:
        needed = for_one * block_bytes
        raise ConfigError(
            f"--speculative-config: K and V of the draft model do not fit: a request of {length} "
            f"tokens takes {for_one} x {block_bytes} = {needed} bytes ({needed // MIB} MiB), and "
            f"{left} bytes ({left // MIB} MiB) are left beside the model's own. Use a smaller "
            "--max-model-len, --kv-cache-memory-bytes or --num-gpu-blocks-override, or no draft "
            "model."
        )
    own = msgspec.structs.replace(own, num_gpu_blocks_override=num_blocks)
    return plan_kv_cache(draft, own, left)
