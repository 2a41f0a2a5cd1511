"""What the torch backend refuses: arrays and batches that do not keep the interface's words.

Shapes are asked, and what is in NumPy; values on the device are not looked at, which would have the
step wait for it. Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.kv import AttentionShape, KVCacheSpec, LayerPlace, RaggedBatch
from headrace.ops.shared import check_ids, check_value_dim, heads_in_words


def check_rows(name: str, x: torch.Tensor, width: int, count: int | None = None) -> None:
    """x must be float32[N, width]; count: of its rows, where that is known."""
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{name} must be float32[N, {width}], not {x.dtype}{list(x.shape)}")
    if count is not None and len(x) != count:
        raise ValueError(f"{name} has {len(x)} rows, x has {count}")


def check_vector(name: str, values: torch.Tensor | None, size: int) -> None:
    """There must be so many values, where there are any."""
    if values is not None and (values.dtype != torch.float32 or values.shape != (size,)):
        raise ValueError(f"{name} must be float32[{size}], not {values.dtype}{list(values.shape)}")


def check_shape(qkv: torch.Tensor, shape: AttentionShape) -> None:
    """Heads must divide, qkv must hold q, k and v heads, and limits must mean something."""
    if shape.window < 0:
        raise ValueError(f"window {shape.window} is negative; 0 means none")
    if shape.chunk < 0:
        raise ValueError(f"chunk {shape.chunk} is negative; 0 means none")
    if not 0 <= shape.softcap < math.inf:
        raise ValueError(f"softcap {shape.softcap} is not in [0, inf); 0 means none")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(
            f"num_heads {shape.num_heads} is not a multiple of num_kv_heads {shape.num_kv_heads}"
        )
    check_value_dim(shape)
    check_rows("qkv", qkv, shape.row_width)


def check_layer(
    qkv: torch.Tensor, shape: AttentionShape, spec: KVCacheSpec, layer: int, batch: RaggedBatch
) -> LayerPlace:
    """The place of the layer. The batch must describe these rows."""
    check_shape(qkv, shape)
    place = spec.place(layer)
    held, wanted = heads_in_words(place), heads_in_words(shape)
    if held != wanted:
        raise ValueError(f"the cache holds {held}, attention has {wanted}")
    if len(qkv) != batch.num_tokens:
        raise ValueError(f"{len(qkv)} rows and {batch.num_tokens} token_ids must be equally many")
    return place


def check_blocks(
    shape: AttentionShape, spec: KVCacheSpec, place: LayerPlace, batch: RaggedBatch
) -> None:
    """Every position that the batch touches in such a layer must have a block. Depends on the
    table of `place`, and of `shape` on window and chunk alone."""
    tables, start = batch.block_table(place), batch.query_start
    if len(tables) != batch.num_requests:
        raise ValueError(
            f"{len(tables)} rows of block tables for {batch.num_requests} requests in query_start"
        )
    for request, table in enumerate(tables):
        positions = batch.positions[start[request] : start[request + 1]]
        if not len(positions):
            continue
        check_ids("position", positions, len(table) * spec.block_size)
        first = first_seen(shape, int(positions.min())) // spec.block_size
        last = int(positions.max()) // spec.block_size
        check_ids("block id", table[first : last + 1], spec.num_blocks)


def first_seen(shape: AttentionShape, position: int) -> int:
    """The first position that a token at `position` sees, masks apart."""
    in_window = position + 1 - shape.window if shape.window else 0
    in_chunk = position - position % shape.chunk if shape.chunk else 0
    return max(0, in_window, in_chunk)


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
        seen = np.arange(first_seen(shape, position), position + 1)
        bits = masks[token, seen // 64] >> (seen % 64).astype(np.uint64)
        if not (bits & np.uint64(1)).any():
            raise ValueError(f"masks of token {token} show it nothing of what it could see")
