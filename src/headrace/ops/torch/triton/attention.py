"""Paged attention in one launch: a program for each tile of tokens, head of K and V, and some rows.

It goes over spans of 64 positions in ascending order, as every backend does: scores, the running
maximum, p = exp(score - maximum), then sums of p and of p * v, older sums scaled down. Positions
are cut at multiples of SPLIT spans: each cut's sums begin at zero, and are joined in ascending
order, by one program or, where there are few, by one that joins what others left. A tile has always
as many rows and a span as many positions, so a token's result does not depend on the batch. K and V
are read where they lie, in any kind.

Codes are exact in bfloat16, as K and V in it are. So what meets them is cut into three numbers of
bfloat16 whose sum it is, and each is multiplied by the codes, with sums in float32; scales come
behind the products of K and before those of V. K and V in float32 meet float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from headrace.ops.device import ATTENTION_BYTES, ATTENTION_CUT
from headrace.ops.kv import NEAR_SPAN, AttentionShape, KVCodec
from headrace.ops.torch.kv_pool import StoredKV, StoredPart
from headrace.ops.torch.triton.kinds import e4m3
from headrace.ops.torch.triton.rope import strides_of
from headrace.ops.torch.triton.rounding import bf16_bits

PLAIN, FP8, FOUR_BITS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
READERS: Mapping[KVCodec, int] = {
    "f32": 0, "bf16": 0, "int8": 0, "q8_0": 0, "fp8": 1, "q4_0": 2,
}  # fmt: skip
"""How codes become numbers, by kind: they are numbers, they are E4M3, or two lie in a byte."""

LEAST_TILE = 16
"""Rows and columns that a product of tiles takes at least."""
SPLIT = ATTENTION_CUT // NEAR_SPAN
"""Spans whose sums are joined as one."""
FEW_PROGRAMS = 264
"""With fewer, each cut of the positions goes to a program of its own: two for each multiprocessor
of a large device (132)."""
WIDEST, WIDEST_F32 = 256, 128
"""Width of a head that is multiplied in parts, and as float32, at most: tiles of a span have to lie
in the memory of a multiprocessor."""
WHOLE, ROUNDED, PARTS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(3)
"""What meets K or V: float32, what is rounded to bfloat16 already, three numbers of it."""


class Tile(NamedTuple):
    """Tiles of a batch, as the kernel reads them."""

    q: torch.Tensor
    """f32[T, kv_heads, rows, head_dim], rounded and turned as K is."""
    positions: torch.Tensor
    """int32[T, rows], the position of each row's token; -1 for rows of no token."""
    table: torch.Tensor
    """int32[T, B]"""
    spans: torch.Tensor
    """int32[T, 2], the first and the last of each tile."""
    splits: int
    """Of one tile at most."""
    sinks: torch.Tensor | None
    """f32[kv_heads, rows]"""
    slopes: torch.Tensor | None
    """f32[kv_heads, rows]"""
    masks: torch.Tensor | None
    """int64[T, tokens, spans]"""
    near_table: torch.Tensor | None
    """int32[T, B]"""


@triton.jit
def _codes(codes, strides, block, slot, head, seen, first, width,
           size: tl.constexpr, READ: tl.constexpr, TYPE: tl.constexpr):  # fmt: skip
    """[64, size] numbers of K or V from dimension `first` on; what is not seen is 0."""
    at = first + tl.arange(0, size)
    start = block * strides[0] + slot * strides[1] + head * strides[2]
    mask = seen[:, None] & (at < width)[None, :]
    if READ == FOUR_BITS:
        pairs = tl.load(codes + start[:, None] + (at // 2)[None, :], mask=mask, other=0x88)
        values = (((pairs.to(tl.int32) >> (4 * (at % 2))[None, :]) & 15) - 8).to(tl.float32)
    else:
        values = tl.load(codes + start[:, None] + at[None, :], mask=mask, other=0)
        if READ == FP8:
            values = e4m3(values.to(tl.int32))
    return values.to(TYPE)


@triton.jit
def _scales(scales, strides, of_layer, block, slot, head, seen, READ: tl.constexpr,
            SCALED: tl.constexpr):  # fmt: skip
    """f32[64], what the numbers of each position are multiplied by."""
    if SCALED:
        place = block * strides[3] + slot * strides[4] + head * strides[5]
        factors = tl.load(scales + place, mask=seen, other=0.0)
    else:
        factors = tl.full(seen.shape, 1.0, dtype=tl.float32)
        if READ == FP8:
            factors = factors * of_layer
    return factors


@triton.jit
def _rounded(x):
    return (bf16_bits(x) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _product(x, values, total, HOW: tl.constexpr, TYPE: tl.constexpr):
    """total + x times values, which are of TYPE; the smallest part comes first."""
    if HOW == PARTS:
        high = _rounded(x)
        middle = _rounded(x - high)
        low = x - high - middle
        total = tl.dot(low.to(TYPE), values, total, input_precision="ieee")
        total = tl.dot(middle.to(TYPE), values, total, input_precision="ieee")
        total = tl.dot(high.to(TYPE), values, total, input_precision="ieee")
    else:
        total = tl.dot(x.to(TYPE), values, total, input_precision="ieee")
    return total


@triton.jit
def _joined(highest, total, mixed, further, more, others):
    """Sums under two maxima as one, those that came first scaled and the others added."""
    higher = tl.maximum(highest, further)
    finite = tl.where(higher == float("-inf"), 0.0, higher)
    keep = tl.where(highest == higher, 1.0, tl.exp(highest - finite))
    join = tl.where(further == higher, 1.0, tl.exp(further - finite))
    total = tl.fma(more, join, total * keep)
    mixed = tl.fma(others, join[:, None], mixed * keep[:, None])
    return higher, total, mixed


COUNTS = ("tiles", "entries", "near_entries", "mask_spans", "per_program", "parts", "count")
"""Arguments that no load is aligned by: a kernel is not compiled again for other ones."""


@triton.jit(do_not_specialize=COUNTS[:-1])
def _kernel(
    q, positions, table, spans, sinks, slopes, masks, out, maxima, totals,
    k, k_scales, k_strides, k_of_layer, v, v_scales, v_strides, v_of_layer,
    near_table, near_k, near_k_strides, near_v, near_v_strides,
    tiles, kv_heads, rows, group, entries, near_entries, mask_spans, head_dim, value_dim,
    block_size, scale, softcap, window, chunk, per_program, parts,
    ROWS: tl.constexpr, DIMS: tl.constexpr, REST: tl.constexpr, VALUES: tl.constexpr,
    SPAN: tl.constexpr, SPLIT: tl.constexpr,
    K_READ: tl.constexpr, V_READ: tl.constexpr, K_SCALED: tl.constexpr, V_SCALED: tl.constexpr,
    K_HOW: tl.constexpr, V_HOW: tl.constexpr, K_TYPE: tl.constexpr, V_TYPE: tl.constexpr,
    SINKS: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, MASKS: tl.constexpr,
    NEAR: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0).to(tl.int64), tl.program_id(1) % kv_heads
    row = tl.program_id(1) // kv_heads * ROWS + tl.arange(0, ROWS)
    dim, value = tl.arange(0, DIMS), tl.arange(0, VALUES)
    own = tl.load(positions + tile * rows + row, mask=row < rows, other=-1)
    has_row = own >= 0
    of = (tile * kv_heads + head) * rows + row
    inside = has_row[:, None] & (dim < head_dim)[None, :]
    query = tl.load(q + of[:, None] * head_dim + dim[None, :], mask=inside, other=0.0)
    if REST > 0:
        rest = DIMS + tl.arange(0, REST)
        inside = has_row[:, None] & (rest < head_dim)[None, :]
        query_rest = tl.load(q + of[:, None] * head_dim + rest[None, :], mask=inside, other=0.0)
    if K_HOW == ROUNDED:
        query = query.to(K_TYPE)
        if REST > 0:
            query_rest = query_rest.to(K_TYPE)
    opening = tl.zeros((ROWS,), dtype=tl.int32)
    if window > 0:
        opening = tl.maximum(opening, own + 1 - window)
    if chunk > 0:
        opening = tl.maximum(opening, own - own % chunk)
    first, last = tl.load(spans + 2 * tile), tl.load(spans + 2 * tile + 1)
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    mixed = tl.zeros((ROWS, VALUES), dtype=tl.float32)
    part = tl.program_id(2)
    if SINKS:  # noqa: SIM102 - known when compiled, and known when run
        if part == 0:
            highest = tl.load(sinks + head * rows + row, mask=has_row, other=0.0)
            total = tl.full((ROWS,), 1.0, dtype=tl.float32)
    begin = first // SPLIT + part * per_program
    for split in range(begin, tl.minimum(begin + per_program, last // SPLIT + 1)):
        most = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
        weight = tl.zeros((ROWS,), dtype=tl.float32)
        sums = tl.zeros((ROWS, VALUES), dtype=tl.float32)
        until = tl.minimum(last, split * SPLIT + SPLIT - 1)
        for span in range(tl.maximum(first, split * SPLIT), until + 1):
            at = span * SPAN + tl.arange(0, SPAN)
            sees = (at[None, :] <= own[:, None]) & (at[None, :] >= opening[:, None])
            sees = sees & has_row[:, None]
            if MASKS:
                token = tile * (rows // group) + row // group
                word = tl.minimum(span, mask_spans - 1)
                bits = tl.load(masks + token * mask_spans + word, mask=has_row, other=0)
                shown = (bits[:, None] >> tl.arange(0, SPAN).to(tl.int64)[None, :]) & 1
                sees = sees & (shown != 0)
            far = sees
            if NEAR:
                beside = sees & (own // SPAN == span)[:, None]
                far = sees & (own // SPAN != span)[:, None]
            some = tl.max(far.to(tl.int32), axis=0) > 0
            block = tl.load(table + tile * entries + at // block_size, mask=some, other=0)
            block, slot = block.to(tl.int64), at % block_size
            scores = tl.zeros((ROWS, SPAN), dtype=tl.float32)
            if REST > 0:
                keys = _codes(k, k_strides, block, slot, head, some, DIMS, head_dim, REST, K_READ,
                              K_TYPE)  # fmt: skip
                scores = _product(query_rest, tl.trans(keys), scores, K_HOW, K_TYPE)
            keys = _codes(k, k_strides, block, slot, head, some, 0, head_dim, DIMS, K_READ, K_TYPE)
            scores = _product(query, tl.trans(keys), scores, K_HOW, K_TYPE)
            if K_SCALED or K_READ == FP8:
                factors = _scales(k_scales, k_strides, k_of_layer, block, slot, head, some, K_READ,
                                  K_SCALED)  # fmt: skip
                scores = scores * factors[None, :]
            if NEAR:
                nearby = tl.max(beside.to(tl.int32), axis=0) > 0
                near_block = tl.load(
                    near_table + tile * near_entries + at // block_size, mask=nearby, other=0
                ).to(tl.int64)
                other = tl.zeros((ROWS, SPAN), dtype=tl.float32)
                if REST > 0:
                    keys = _codes(near_k, near_k_strides, near_block, slot, head, nearby, DIMS,
                                  head_dim, REST, PLAIN, K_TYPE)  # fmt: skip
                    other = _product(query_rest, tl.trans(keys), other, K_HOW, K_TYPE)
                keys = _codes(near_k, near_k_strides, near_block, slot, head, nearby, 0, head_dim,
                              DIMS, PLAIN, K_TYPE)  # fmt: skip
                other = _product(query, tl.trans(keys), other, K_HOW, K_TYPE)
                scores = tl.where(beside, other, scores)
            scores = scores * scale
            if SOFTCAP:
                # tanh, by the exponential of what is not positive: nothing overflows.
                size = tl.abs(scores / softcap)
                shrunk = tl.exp(-2.0 * size)
                bent = (1.0 - shrunk) / (1.0 + shrunk)
                scores = softcap * tl.where(scores < 0, -bent, bent)
            if SLOPES:
                slope = tl.load(slopes + head * rows + row, mask=has_row, other=0.0)
                scores += slope[:, None] * (at[None, :] - own[:, None]).to(tl.float32)
            scores = tl.where(sees, scores, float("-inf"))
            higher = tl.maximum(most, tl.max(scores, axis=1))
            finite = tl.where(higher == float("-inf"), 0.0, higher)
            p = tl.exp(scores - finite[:, None])
            if V_HOW == ROUNDED:
                p = _rounded(p)
            keep = tl.where(most == higher, 1.0, tl.exp(most - finite))
            weight = weight * keep + tl.sum(p, axis=1)
            values = _codes(v, v_strides, block, slot, head, some, 0, value_dim, VALUES, V_READ,
                            V_TYPE)  # fmt: skip
            of_far = p
            if NEAR:
                of_far = tl.where(beside, 0.0, p)
            shares = of_far
            if V_SCALED or V_READ == FP8:
                factors = _scales(v_scales, v_strides, v_of_layer, block, slot, head, some, V_READ,
                                  V_SCALED)  # fmt: skip
                shares = shares * factors[None, :]
            sums = _product(shares, values, sums * keep[:, None], V_HOW, V_TYPE)
            if NEAR:
                values = _codes(near_v, near_v_strides, near_block, slot, head, nearby, 0,
                                value_dim, VALUES, PLAIN, V_TYPE)  # fmt: skip
                sums = _product(p - of_far, values, sums, V_HOW, V_TYPE)
            most = higher
        highest, total, mixed = _joined(highest, total, mixed, most, weight, sums)
    if parts == 1:
        mixed = mixed / tl.where(has_row, total, 1.0)[:, None]
    else:
        place = part.to(tl.int64) * tiles * kv_heads * rows + of
        tl.store(maxima + place, highest, mask=has_row)
        tl.store(totals + place, total, mask=has_row)
        of = place
        # Most parts are of positions that are not there yet: what has seen nothing leaves nothing.
        has_row = has_row & (total != 0.0)
    place = of[:, None] * value_dim + value[None, :]
    tl.store(out + place, mixed, mask=has_row[:, None] & (value < value_dim)[None, :])


@triton.jit(do_not_specialize=COUNTS[-2:])
def _join(mixes, maxima, totals, positions, out, count, rows, kv_heads, parts, value_dim,
          ROWS: tl.constexpr, VALUES: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    value = tl.arange(0, VALUES)
    own = row // (rows * kv_heads) * rows + row % rows
    has_row = tl.load(positions + own, mask=row < count, other=-1) >= 0
    inside = has_row[:, None] & (value < value_dim)[None, :]
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    mixed = tl.zeros((ROWS, VALUES), dtype=tl.float32)
    place = row
    for _ in range(parts):
        further = tl.load(maxima + place, mask=has_row, other=float("-inf"))
        more = tl.load(totals + place, mask=has_row, other=0.0)
        others = tl.load(
            mixes + place[:, None] * value_dim + value[None, :],
            mask=inside & (more != 0.0)[:, None], other=0.0,
        )  # fmt: skip
        highest, total, mixed = _joined(highest, total, mixed, further, more, others)
        place += count
    mixed = mixed / tl.where(has_row, total, 1.0)[:, None]
    tl.store(out + row[:, None] * value_dim + value[None, :], mixed, mask=inside)


def takes(shape: AttentionShape, stored: StoredKV) -> bool:
    """Whether attention over what is stored so is computed here."""
    kinds, widest = {stored.k.codec, stored.values.codec}, max(shape.head_dim, shape.value_width)
    # Of two numbers in a byte, values that are a part of their keys begin with the first.
    in_pairs = shape.latent and stored.k.codec == "q4_0"
    whole = not in_pairs or (shape.head_dim - shape.value_width) % 2 == 0
    most = WIDEST_F32 if "f32" in kinds else WIDEST
    return whole and (kinds == {"bf16"} or widest <= most)


def attend(tile: Tile, shape: AttentionShape, stored: StoredKV, block_size: int) -> torch.Tensor:
    """f32[T, kv_heads, rows, value_width], still turned as V is."""
    tiles, kv_heads, rows, head_dim = tile.q.shape
    width, on_processor = shape.value_width, tile.q.device.type == "cpu"
    k, v = stored.k, _values(stored)
    near = stored.near or stored
    near_k, near_v = near.k, _values(near)
    values = _whole(width)
    # As many rows as leave room for their sums in registers.
    of_program = min(_whole(rows), 64 if values <= 128 else 32 if values <= 256 else 16)
    blocks = triton.cdiv(rows, of_program)
    splits, programs = tile.splits, tiles * kv_heads * blocks
    left = 4 * splits * tiles * kv_heads * rows * width
    spread = programs < FEW_PROGRAMS and splits > 1 and left <= ATTENTION_BYTES
    parts = splits if spread else 1
    out = tile.q.new_empty((tiles, kv_heads, rows, width))
    mixes = out.new_empty((parts, *out.shape)) if spread else out
    maxima = out.new_empty((parts, tiles, kv_heads, rows)) if spread else None
    totals = torch.empty_like(maxima) if maxima is not None else None
    dims = max(LEAST_TILE, 1 << (head_dim.bit_length() - 1))
    rest = _whole(head_dim - dims) if head_dim > dims else 0
    k_how, v_how = _how(k.codec), _how(v.codec)
    # The interpreter multiplies no bfloat16: there its numbers are float32.
    k_type, v_type = (
        tl.float32 if how == WHOLE.value or on_processor else tl.bfloat16 for how in (k_how, v_how)
    )
    _kernel[(tiles, kv_heads * blocks, parts)](
        tile.q, tile.positions, tile.table, tile.spans, tile.sinks, tile.slopes,
        tile.masks, mixes, maxima, totals,
        k.codes, k.scales, strides_of(k), k.of_layer, v.codes, v.scales, strides_of(v), v.of_layer,
        tile.near_table, near_k.codes, strides_of(near_k), near_v.codes, strides_of(near_v),
        tiles, kv_heads, rows, shape.num_heads // kv_heads, tile.table.shape[1],
        0 if tile.near_table is None else tile.near_table.shape[1],
        0 if tile.masks is None else tile.masks.shape[2], head_dim, width, block_size,
        shape.scale, shape.softcap, shape.window, shape.chunk, 1 if spread else splits, parts,
        ROWS=of_program, DIMS=dims, REST=rest, VALUES=values, SPAN=NEAR_SPAN, SPLIT=SPLIT,
        K_READ=READERS[k.codec], V_READ=READERS[v.codec], K_SCALED=k.scales is not None,
        V_SCALED=v.scales is not None, K_HOW=k_how, V_HOW=v_how, K_TYPE=k_type, V_TYPE=v_type,
        SINKS=tile.sinks is not None, SOFTCAP=shape.softcap > 0, SLOPES=tile.slopes is not None,
        MASKS=tile.masks is not None, NEAR=stored.near is not None,
        **options(of_program, values, dims + rest, in_parts=PARTS.value in (k_how, v_how)),
    )  # fmt: skip
    if spread:
        count = tiles * kv_heads * rows
        _join[(triton.cdiv(count, LEAST_TILE),)](
            mixes, maxima, totals, tile.positions, out, count, rows, kv_heads, parts, width,
            ROWS=LEAST_TILE, VALUES=values,
        )  # fmt: skip
    return out


def options(rows: int, values: int, dims: int, *, in_parts: bool) -> dict[str, int]:
    """How a program of so many rows and widths is compiled: its warps, and the spans whose loads
    are under way at a time, of which a multiprocessor has to have the memory beside the parts of
    what meets them."""
    warps = 8 if rows * values >= 8192 else 4
    return {"num_warps": warps, "num_stages": 1 if in_parts and max(values, dims) > 128 else 3}


def _how(codec: KVCodec) -> int:
    """What meets K or V in this kind."""
    found = WHOLE if codec == "f32" else ROUNDED if codec == "bf16" else PARTS
    return int(found.value)


def _values(stored: StoredKV) -> StoredPart:
    """V, or the last dimensions of K where values are latent."""
    if stored.v is not None:
        return stored.v
    width = stored.value_dim // 2 if stored.k.codec == "q4_0" else stored.value_dim
    return replace(stored.k, codes=stored.k.codes[..., stored.k.codes.shape[-1] - width :])


def _whole(size: int) -> int:
    """The power of two in which so many lie, of those that a product takes."""
    return max(LEAST_TILE, int(triton.next_power_of_2(size)))
