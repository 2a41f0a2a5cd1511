"""What the reference refuses: a ragged batch or an array that does not keep the interface's words.

Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.ops.interface import AttentionShape, KVCacheArrays, RaggedBatch


def check_rows(name: str, x: npt.NDArray[np.float32], width: int) -> None:
    """x must be float32[N, width]."""
    if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{name} must be float32[N, {width}], not {x.dtype}{list(x.shape)}")


def check_ids(name: str, ids: npt.NDArray[np.int32], limit: int) -> None:
    """Every id must lie in [0, limit)."""
    bad = (ids < 0) | (ids >= limit)
    if bad.any():
        raise ValueError(f"{name} {int(ids[bad][0])} is not in [0, {limit})")


def check_shape(qkv: npt.NDArray[np.float32], shape: AttentionShape) -> None:
    """Heads must divide, qkv must hold q, k and v heads, and limits must mean something."""
    if shape.window < 0:
        raise ValueError(f"window {shape.window} is negative; 0 means none")
    if not 0 <= shape.softcap < np.inf:
        raise ValueError(f"softcap {shape.softcap} is not in [0, inf); 0 means none")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(
            f"num_heads {shape.num_heads} is not a multiple of num_kv_heads {shape.num_kv_heads}"
        )
    check_rows("qkv", qkv, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim)


def check_batch(
    qkv: npt.NDArray[np.float32],
    shape: AttentionShape,
    kv: KVCacheArrays,
    layer: int,
    batch: RaggedBatch,
) -> None:
    """The batch must describe these rows, and every position it touches must have a block."""
    check_shape(qkv, shape)
    spec, start = kv.spec, batch.query_start
    if (spec.num_kv_heads, spec.head_dim) != (shape.num_kv_heads, shape.head_dim):
        raise ValueError(
            f"the cache holds {spec.num_kv_heads} heads of {spec.head_dim}, "
            f"attention has {shape.num_kv_heads} of {shape.head_dim}"
        )
    if not 0 <= layer < spec.num_layers:
        raise ValueError(f"layer {layer} is not in [0, {spec.num_layers})")
    if len(qkv) != batch.num_tokens or len(batch.positions) != batch.num_tokens:
        raise ValueError(
            f"{len(qkv)} rows, {batch.num_tokens} token_ids and {len(batch.positions)} positions "
            "must be equally many"
        )
    if start[0] != 0 or start[-1] != batch.num_tokens or (np.diff(start) < 0).any():
        raise ValueError(f"query_start {start.tolist()} does not rise from 0 to {batch.num_tokens}")
    if len(batch.block_tables) != len(start) - 1:
        raise ValueError(
            f"{len(batch.block_tables)} block tables for {len(start) - 1} requests in query_start"
        )
    for request, table in enumerate(batch.block_tables):
        positions = batch.positions[start[request] : start[request + 1]]
        if not len(positions):
            continue
        check_ids("position", positions, len(table) * spec.block_size)
        opening = max(0, int(positions.min()) + 1 - shape.window) if shape.window else 0
        first, last = opening // spec.block_size, int(positions.max()) // spec.block_size
        check_ids("block id", table[first : last + 1], spec.num_blocks)
