"""Paged attention in one launch: a program for each tile of tokens and head of K and V.

It goes over spans of 64 positions in ascending order, as every backend does: scores, the running
maximum, p = exp(score - maximum), then sums of p and of p * v, older sums scaled down. A tile has
always as many rows and a span as many positions, so a token's result does not depend on the batch.
K and V are read where they lie, in float32, bfloat16 or 8 bits with a scale; slopes, masks, latent
values, 4 bits, FP8 and what is near are left to PyTorch's operations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from headrace.ops.kv import NEAR_SPAN, AttentionShape, KVCodec
from headrace.ops.torch.kv_pool import StoredKV
from headrace.ops.torch.triton.rope import strides_of

CODECS: frozenset[KVCodec] = frozenset({"f32", "bf16", "int8", "q8_0"})
"""Of K and of V, those that are read here."""

LEAST_TILE = 16
"""Rows and columns that a product of tiles takes at least."""


class Tile(NamedTuple):
    """Tiles of a batch, as the kernel reads them."""

    q: torch.Tensor
    """f32[T, kv_heads, rows, head_dim], rounded and turned as K is."""
    positions: torch.Tensor
    """int32[T, rows], the position of each row's token."""
    table: torch.Tensor
    """int32[T, B]"""
    spans: torch.Tensor
    """int32[T, 2], the first and the last of each tile."""
    sinks: torch.Tensor | None
    """f32[kv_heads, rows]"""


@triton.jit
def _part(codes, scales, block, slot, head, seen, width, strides, size: tl.constexpr,
          has_scale: tl.constexpr):  # fmt: skip
    """[64, size] float32 of K or V; what is not seen is 0."""
    at = tl.arange(0, size)
    start = block * strides[0] + slot * strides[1] + head * strides[2]
    mask = seen[:, None] & (at < width)[None, :]
    values = tl.load(codes + start[:, None] + at[None, :], mask=mask, other=0).to(tl.float32)
    if has_scale:
        place = block * strides[3] + slot * strides[4] + head * strides[5]
        values = values * tl.load(scales + place, mask=seen, other=0.0)[:, None]
    return values


@triton.jit
def _rounded(p):
    """The nearest bfloat16, ties to even, of numbers that are not negative, as float32. By bits, as
    Triton's interpreter cuts where a device rounds."""
    bits = p.to(tl.uint32, bitcast=True)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.to(tl.float32, bitcast=True)


@triton.jit
def _kernel(
    q, positions, table, spans, sinks, out,
    k, k_scales, k_strides, v, v_scales, v_strides,
    kv_heads, rows, entries, head_dim, value_dim, block_size, scale, softcap, window, chunk,
    ROWS: tl.constexpr, DIMS: tl.constexpr, VALUES: tl.constexpr, SPAN: tl.constexpr,
    K_SCALED: tl.constexpr, V_SCALED: tl.constexpr, ROUND_P: tl.constexpr, SINKS: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, dim, value = tl.arange(0, ROWS), tl.arange(0, DIMS), tl.arange(0, VALUES)
    of = tile * kv_heads + head
    has_row = row < rows
    inside = has_row[:, None] & (dim < head_dim)[None, :]
    query = tl.load(
        q + (of * rows + row)[:, None] * head_dim + dim[None, :], mask=inside, other=0.0
    )
    own = tl.load(positions + tile * rows + row, mask=has_row, other=-1)
    opening = tl.zeros((ROWS,), dtype=tl.int32)
    if window > 0:
        opening = tl.maximum(opening, own + 1 - window)
    if chunk > 0:
        opening = tl.maximum(opening, own - own % chunk)
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    if SINKS:
        highest = tl.load(sinks + head * rows + row, mask=has_row, other=0.0)
        total = tl.full((ROWS,), 1.0, dtype=tl.float32)
    mixed = tl.zeros((ROWS, VALUES), dtype=tl.float32)
    first, last = tl.load(spans + 2 * tile), tl.load(spans + 2 * tile + 1)
    for span in range(first, last + 1):
        at = span * SPAN + tl.arange(0, SPAN)
        sees = has_row[:, None] & (at[None, :] <= own[:, None]) & (at[None, :] >= opening[:, None])
        some = tl.max(sees.to(tl.int32), axis=0) > 0
        block = tl.load(table + tile * entries + at // block_size, mask=some, other=0).to(tl.int64)
        slot = at % block_size
        keys = _part(k, k_scales, block, slot, head, some, head_dim, k_strides, DIMS, K_SCALED)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        if SOFTCAP:
            # tanh, by the exponential of what is not positive: nothing overflows.
            size = tl.abs(scores / softcap)
            shrunk = tl.exp(-2.0 * size)
            bent = (1.0 - shrunk) / (1.0 + shrunk)
            scores = softcap * tl.where(scores < 0, -bent, bent)
        scores = tl.where(sees, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(scores - finite[:, None])
        if ROUND_P:
            p = _rounded(p)
        keep = tl.where(highest == higher, 1.0, tl.exp(highest - finite))
        total = total * keep + tl.sum(p, axis=1)
        values = _part(v, v_scales, block, slot, head, some, value_dim, v_strides, VALUES, V_SCALED)
        mixed = mixed * keep[:, None] + tl.dot(p, values, input_precision="ieee")
        highest = higher
    result = mixed / tl.where(has_row, total, 1.0)[:, None]
    place = (of * rows + row)[:, None] * value_dim + value[None, :]
    tl.store(out + place, result, mask=has_row[:, None] & (value < value_dim)[None, :])


def takes(shape: AttentionShape, stored: StoredKV) -> bool:
    """Whether attention over what is stored so is computed here, slopes and masks apart."""
    parts = (stored.k, stored.values)
    plain = not shape.latent and stored.near is None
    return plain and all(part.codec in CODECS for part in parts)


def attend(tile: Tile, shape: AttentionShape, stored: StoredKV, block_size: int) -> torch.Tensor:
    """f32[T, kv_heads, rows, value_width], still turned as V is."""
    tiles, kv_heads, rows, head_dim = tile.q.shape
    assert stored.v is not None, "`takes` refuses latent values"
    k, v = stored.k, stored.v
    out = tile.q.new_empty((tiles, kv_heads, rows, shape.value_width))
    _kernel[(tiles, kv_heads)](
        tile.q, tile.positions, tile.table, tile.spans, tile.sinks, out,
        k.codes, k.scales, strides_of(k), v.codes, v.scales, strides_of(v),
        kv_heads, rows, tile.table.shape[1], head_dim, shape.value_width, block_size,
        shape.scale, shape.softcap, shape.window, shape.chunk,
        ROWS=_whole(rows), DIMS=_whole(head_dim), VALUES=_whole(shape.value_width), SPAN=NEAR_SPAN,
        K_SCALED=k.scales is not None, V_SCALED=v.scales is not None,
        ROUND_P=v.codec == "bf16", SINKS=tile.sinks is not None, SOFTCAP=shape.softcap > 0,
    )  # fmt: skip
    return out


def _whole(size: int) -> int:
    """The power of two in which so many lie, of those that a product takes."""
    return max(LEAST_TILE, int(triton.next_power_of_2(size)))
