"""Products with Q8_0 as files have it: 8-bit numbers in blocks of 32 under a scale of F16.

The arithmetic is that of docs/kernels.md: rows are rounded to 8 bits in blocks of 32, a block's sum
of products is an exact integer, `total = n * (s * d) + total` in ascending order of blocks. A tile
has always as many rows and outputs, so a row's result does not depend on the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from headrace.ops.torch.rounding import BLOCK, quantised

TILE_ROWS = 16
"""Rows of x in a tile: the least that a product of tiles takes."""
TILE_OUTS = 64
"""Outputs in a tile."""
STORED_BYTES = 34
"""Of a block: its scale and 32 numbers."""


@triton.jit
def _kernel(
    x, x_scales, bytes_, numbers, out, rows, outs, blocks,
    TILE_ROWS: tl.constexpr, TILE_OUTS: tl.constexpr, BLOCK: tl.constexpr,
    STORED_BYTES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    of = tl.program_id(1) * TILE_OUTS + tl.arange(0, TILE_OUTS)
    within = tl.arange(0, BLOCK)
    has_row, has_out = row < rows, of < outs
    # Rows of a large matrix lie beyond what 32 bits count.
    of_row = row.to(tl.int64) * blocks
    of_out = of.to(tl.int64) * (blocks * STORED_BYTES)
    total = tl.zeros((TILE_ROWS, TILE_OUTS), dtype=tl.float32)
    for block in range(blocks):
        at = (of_row + block)[:, None] * BLOCK + within[None, :]
        given = tl.load(x + at, mask=has_row[:, None], other=0)
        d = tl.load(x_scales + of_row + block, mask=has_row, other=0.0)
        start = of_out + block * STORED_BYTES
        low = tl.load(bytes_ + start, mask=has_out, other=0).to(tl.uint16)
        high = tl.load(bytes_ + start + 1, mask=has_out, other=0).to(tl.uint16)
        s = (low | (high << 8)).to(tl.float16, bitcast=True).to(tl.float32)
        stored = numbers + start[None, :] + 2 + within[:, None]
        weight = tl.load(stored, mask=has_out[None, :], other=0)
        n = tl.dot(given, weight, out_dtype=tl.int32)
        total += n.to(tl.float32) * (s[None, :] * d[:, None])
    place = row.to(tl.int64)[:, None] * outs + of[None, :]
    tl.store(out + place, total, mask=has_row[:, None] & has_out[None, :])


def product(x: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """x f32[n, k] times the matrix in stored rows uint8[outs, k / 32 * 34]: f32[n, outs]."""
    scales, numbers = quantised(x, BLOCK)
    rows, outs, blocks = len(x), len(data), x.shape[1] // BLOCK
    out = torch.empty((rows, outs), dtype=torch.float32, device=x.device)
    if rows and outs:
        grid = (triton.cdiv(rows, TILE_ROWS), triton.cdiv(outs, TILE_OUTS))
        _kernel[grid](
            numbers.to(torch.int8), scales, data, data.view(torch.int8), out, rows, outs, blocks,
            TILE_ROWS=TILE_ROWS, TILE_OUTS=TILE_OUTS, BLOCK=BLOCK, STORED_BYTES=STORED_BYTES,
        )  # fmt: skip
    return out
