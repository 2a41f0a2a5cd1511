"""What the reference refuses: a ragged batch or an array that does not keep the interface's words.

Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.ops.kv import AttentionShape, KVCacheArrays, LayerPlace, RaggedBatch
from headrace.ops.shared import check_ids, check_value_dim, heads_in_words


def check_rows(name: str, x: npt.NDArray[np.float32], width: int) -> None:
    """x must be float32[N, width]."""
    if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{name} must be float32[N, {width}], not {x.dtype}{list(x.shape)}")


def check_shape(qkv: npt.NDArray[np.float32], shape: AttentionShape) -> None:
    """Heads must divide, qkv must hold q, k and v heads, and limits must mean something."""
    if shape.window < 0:
        raise ValueError(f"window {shape.window} is negative; 0 means none")
    if shape.chunk < 0:
        raise ValueError(f"chunk {shape.chunk} is negative; 0 means none")
    if not 0 <= shape.softcap < np.inf:
        raise ValueError(f"softcap {shape.softcap} is not in [0, inf); 0 means none")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(
            f"num_heads {shape.num_heads} is not a multiple of num_kv_heads {shape.num_kv_heads}"
        )
    check_value_dim(shape)
    check_rows("qkv", qkv, shape.row_width)


def first_seen(shape: AttentionShape, position: int) -> int:
    """The first position that a token at `position` sees, masks apart."""
    in_window = position + 1 - shape.window if shape.window else 0
    in_chunk = position - position % shape.chunk if shape.chunk else 0
    return max(0, in_window, in_chunk)


def check_heads(name: str, values: npt.NDArray[np.float32] | None, shape: AttentionShape) -> None:
    """There must be one value for each q head, where there are any."""
    if values is not None and (values.dtype != np.float32 or values.shape != (shape.num_heads,)):
        raise ValueError(
            f"{name} must be float32[{shape.num_heads}], not {values.dtype}{list(values.shape)}"
        )


def check_masks(
    masks: npt.NDArray[np.uint64] | None, shape: AttentionShape, batch: RaggedBatch
) -> None:
    """Every token must have masks up to its own position and see something."""
    if masks is None:
        return
    if masks.dtype != np.uint64 or masks.ndim != 2 or len(masks) != batch.num_tokens:
        raise ValueError(
            f"masks must be uint64[{batch.num_tokens}, spans], not {masks.dtype}{list(masks.shape)}"
        )
    for token, position in enumerate(batch.positions.tolist()):
        if position // 64 >= masks.shape[1]:
            raise ValueError(
                f"masks of token {token} have {masks.shape[1]} spans, position {position} is in "
                f"number {position // 64}"
            )
        if not len(seen_positions(shape, position, masks[token])):
            raise ValueError(f"masks of token {token} show it nothing of what it could see")


def seen_positions(
    shape: AttentionShape, position: int, mask: npt.NDArray[np.uint64] | None
) -> npt.NDArray[np.int64]:
    """The positions a token sees, in ascending order: int64[n]."""
    seen = np.arange(first_seen(shape, position), position + 1)
    if mask is None:
        return seen
    bits = mask[seen // 64] >> (seen % 64).astype(np.uint64)
    shown: npt.NDArray[np.int64] = seen[(bits & np.uint64(1)).astype(bool)]
    return shown


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
    spec, start = kv.spec, batch.query_start
    place = spec.place(layer)
    held, wanted = heads_in_words(place), heads_in_words(shape)
    if held != wanted:
        raise ValueError(f"the cache holds {held}, attention has {wanted}")
    tables = batch.block_table(place)
    if len(qkv) != batch.num_tokens or len(batch.positions) != batch.num_tokens:
        raise ValueError(
            f"{len(qkv)} rows, {batch.num_tokens} token_ids and {len(batch.positions)} positions "
            "must be equally many"
        )
    if start[0] != 0 or start[-1] != batch.num_tokens or (np.diff(start) < 0).any():
        raise ValueError(f"query_start {start.tolist()} does not rise from 0 to {batch.num_tokens}")
    if len(tables) != len(start) - 1:
        raise ValueError(
            f"{len(tables)} rows of block tables for {len(start) - 1} requests in query_start"
        )
    for request, table in enumerate(tables):
        positions = batch.positions[start[request] : start[request + 1]]
        if not len(positions):
            continue
        check_ids("position", positions, len(table) * spec.block_size)
        opening = first_seen(shape, int(positions.min()))
        first, last = opening // spec.block_size, int(positions.max()) // spec.block_size
        check_ids("block id", table[first : last + 1], spec.num_blocks)
    return place
