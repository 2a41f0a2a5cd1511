"""What the reference refuses: a ragged batch or an array that does not keep the interface's words.

Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.ops.batch_checks import check_blocks, check_limits, place_of
from headrace.ops.kv import AttentionShape, KVCacheArrays, LayerPlace, RaggedBatch


def check_rows(name: str, x: npt.NDArray[np.float32], width: int) -> None:
    """x must be float32[N, width]."""
    if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{name} must be float32[N, {width}], not {x.dtype}{list(x.shape)}")


def check_shape(qkv: npt.NDArray[np.float32], shape: AttentionShape) -> None:
    """Heads must divide, qkv must hold q, k and v heads, and limits must mean something."""
    check_limits(shape)
    check_rows("qkv", qkv, shape.row_width)


def check_heads(name: str, values: npt.NDArray[np.float32] | None, shape: AttentionShape) -> None:
    """There must be one value for each q head, where there are any."""
    if values is not None and (values.dtype != np.float32 or values.shape != (shape.num_heads,)):
        raise ValueError(
            f"{name} must be float32[{shape.num_heads}], not {values.dtype}{list(values.shape)}"
        )


def check_batch(
    qkv: npt.NDArray[np.float32],
    shape: AttentionShape,
    kv: KVCacheArrays,
    layer: int,
    batch: RaggedBatch,
) -> LayerPlace:
    """The place of the layer. The batch must describe these rows, and every position it touches
    must have a block.
    """
    check_shape(qkv, shape)
    start, place = batch.query_start, place_of(shape, kv.spec, layer)
    if len(qkv) != batch.num_tokens or len(batch.positions) != batch.num_tokens:
        raise ValueError(
            f"{len(qkv)} rows, {batch.num_tokens} token_ids and {len(batch.positions)} positions "
            "must be equally many"
        )
    if start[0] != 0 or start[-1] != batch.num_tokens or (np.diff(start) < 0).any():
        raise ValueError(f"query_start {start.tolist()} does not rise from 0 to {batch.num_tokens}")
    check_blocks(shape, kv.spec, place, batch)
    return place
