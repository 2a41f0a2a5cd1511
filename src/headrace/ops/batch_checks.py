"""What backends in Python refuse of a KV cache and a ragged batch, by shapes and NumPy arrays.

Each check raises ValueError naming the field, the value and the limit.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from headrace.ops.kv import NEAR_SPAN, AttentionShape, KVCacheSpec, LayerPlace, RaggedBatch
from headrace.ops.shared import check_ids, check_value_dim, heads_in_words


def check_limits(shape: AttentionShape) -> None:
    """Heads must divide, and limits must mean something."""
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


def check_cache(spec: KVCacheSpec, known: Collection[str]) -> None:
    """Blocks, layers and heads must be some, and codecs among those that are `known`."""
    size = spec.block_size
    if size < 16 or size > NEAR_SPAN or size & (size - 1):
        raise ValueError(f"block_size {size} is not a power of two from 16 to {NEAR_SPAN}")
    kept = {place for place in spec.places if place is not None}
    numbers = [("num_layers", len(kept)), ("num_blocks", spec.num_blocks)]
    for place in kept:
        if place.table < 0:
            raise ValueError(f"table {place.table} of a layer of a KV cache must be at least 0")
        numbers += [("num_kv_heads", place.num_kv_heads), ("head_dim", place.head_dim)]
    for field, number in numbers:
        if number < 1:
            raise ValueError(f"{field} of a KV cache must be at least 1, not {number}")
    for place in kept:
        check_value_dim(place)
        for scale in (place.k_scale, place.v_scale):
            if not 2.0**-60 <= scale <= 2.0**60:
                raise ValueError(f"scale {scale} of K or V of a KV cache is not in [2^-60, 2^60]")
        for field, codec in zip(("k_codec", "v_codec"), spec.codecs(place), strict=True):
            if codec not in known:
                raise ValueError(f"{field} {codec!r} is unknown; choose one of {', '.join(known)}")
    if len({(place.table, place.index) for place in kept}) != len(kept):
        raise ValueError("layers in one place of a KV cache differ in width")


def place_of(shape: AttentionShape, spec: KVCacheSpec, layer: int) -> LayerPlace:
    """The place of a layer, which must hold heads of this shape."""
    place = spec.place(layer)
    held, wanted = heads_in_words(place), heads_in_words(shape)
    if held != wanted:
        raise ValueError(f"the cache holds {held}, attention has {wanted}")
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
