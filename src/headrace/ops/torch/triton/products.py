"""Products with weights at their stored width: one kernel for all kinds of `kinds.KINDS`.

A program has a tile of rows and outputs and goes over k in steps, in ascending order. For kinds of
bytes the arithmetic is that of docs/kernels.md: rows are rounded to 8 bits in blocks of 32, the sum
of a step is an exact integer, `total = n * (s * d) + total`, then a minimum is taken away. For
floats it is a product of tiles of bfloat16 with sums in float32, times the scale of the step. k is
cut at multiples of SEGMENT: each segment's sum begins at zero, and sums are added in ascending
order, by one program or, where there are few tiles, by one that adds what others left. So a row's
result follows from that row alone, and neither the number of rows nor how work is shared out shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl

from headrace.ops.shared import values_of_a_scale
from headrace.ops.torch.rounding import round_bf16
from headrace.ops.torch.triton.kinds import KINDS, Kind
from headrace.ops.torch.triton.rows import quantised

if TYPE_CHECKING:
    from headrace.ops.torch.matrices import Matrix

SEGMENT = 1024
"""Values of k whose sum is one. Part of the arithmetic: as short as leaves a decode step of a small
matrix, of 4,096 by 4,096, four times as many programs as it has tiles of outputs."""
ENOUGH_PROGRAMS = 512
"""Programs with which a device is busy (large ones have 132 to 160 multiprocessors, and a few
programs fit on each); with fewer, segments go to programs of their own."""
UNDER_WAY = 128
"""Values of k whose loads are under way at a time where rows are few: steps of so many are written
out in a row. Where they are many, other warps load meanwhile, and registers would not suffice."""
JOINED = 1024
"""Values that a program adds up from segments."""


class TileShape(NamedTuple):
    """Rows and outputs of a tile, and the warps that compute it."""

    rows: int
    outs: int
    warps: int


FEW, MANY = TileShape(16, 32, 2), TileShape(64, 64, 4)
"""For few rows, the least that a product of tiles takes, and for more. Sums of bytes are exact, so
that either gives the same bits; floats take MANY for any number, as the instruction that multiplies
follows from the tile."""


class Groups(NamedTuple):
    """Rows of a product by the matrix of a stack that each is multiplied by."""

    order: torch.Tensor
    """int32[P], the places of results, those of a matrix together."""
    rows: int
    """Of a tile."""
    tiles: torch.Tensor
    """int32[3, T]: the matrix of each tile of rows, and where its rows begin and end in the order;
    of tiles that are not needed begin and end are equal."""

    @classmethod
    def of(cls, experts: torch.Tensor, count: int, rows: int) -> Groups:
        """Of the matrix of each place, int32[P], of `count`. All of it is computed on the device:
        there are as many tiles as there may be at most, and nothing waits for how many there are.
        """
        of, places = experts.long(), len(experts)
        order = torch.sort(of, stable=True).indices
        each = torch.zeros(count, dtype=torch.int64, device=of.device)
        each.scatter_add_(0, of, torch.ones_like(of))
        tiles = (each + (rows - 1)) // rows
        last_rows, last_tiles = each.cumsum(0), tiles.cumsum(0)
        most = min(places, (places + min(count, places) * (rows - 1)) // rows)
        tile = torch.arange(most, device=of.device)
        matrix = torch.searchsorted(last_tiles, tile, right=True).clamp(max=count - 1)
        end = last_rows[matrix]
        begin = end - each[matrix] + (tile - last_tiles[matrix] + tiles[matrix]) * rows
        needed = tile < last_tiles[-1]
        facts = torch.stack([matrix, begin, end]) * needed
        return cls(order.int(), rows, facts.int())


@triton.jit(do_not_specialize=["rows", "steps", "runs", "sources", "tile_count"])
def _kernel(
    x, x_scales, x_sums, data, scales, out, order, tiles,
    rows, outs, width, steps, row_bytes, run, runs, sources, tile_count,
    ROWS: tl.constexpr, OUTS: tl.constexpr, STEP: tl.constexpr, UNPACK: tl.constexpr,
    HALVES: tl.constexpr, MINIMUM: tl.constexpr, FLOATS: tl.constexpr, SCALES: tl.constexpr,
    SPREAD: tl.constexpr, GROUPED: tl.constexpr, PER_SEGMENT: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    of = tl.program_id(1) * OUTS + tl.arange(0, OUTS)
    has_out = of < outs
    matrix_row = of.to(tl.int64)
    if GROUPED:
        matrix_row += tl.load(tiles + tile).to(tl.int64) * outs
        place = tl.load(tiles + tile_count + tile) + tl.arange(0, ROWS)
        end = tl.load(tiles + 2 * tile_count + tile)
        has_row = place < end
        target = tl.load(order + place, mask=has_row, other=0).to(tl.int64)
        source = target // sources
        # A tile that is not needed costs its launch.
        steps = tl.where(tl.load(tiles + tile_count + tile) < end, steps, 0)
    else:
        target = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        source = target
        has_row = target < rows
    k = tl.arange(0, STEP)
    begins = matrix_row * row_bytes
    segments = (steps + PER_SEGMENT - 1) // PER_SEGMENT
    first, last = 0, segments
    if SPREAD:
        first = tl.program_id(2)
        last = tl.minimum(first + 1, segments)
    total = tl.zeros((ROWS, OUTS), dtype=tl.float32)
    for segment in range(first, last):
        part = tl.zeros((ROWS, OUTS), dtype=tl.float32)
        until = tl.minimum((segment + 1) * PER_SEGMENT, steps)
        for step in tl.range(segment * PER_SEGMENT, until, loop_unroll_factor=UNROLL):
            at = source[:, None] * width + (step * STEP + k)[None, :]
            if FLOATS:
                in_row = step * STEP + k < width
                given = tl.load(x + at, mask=has_row[:, None] & in_row[None, :], other=0.0)
                numbers, s, _, _ = UNPACK(data, begins, step, has_out, width)
                if SCALES:
                    which = matrix_row * runs + step * STEP // run
                    s = tl.load(scales + which, mask=has_out, other=0.0)
                n = tl.dot(given, numbers.to(given.dtype), input_precision="ieee")
                part = tl.fma(n, s[None, :], part)
            else:
                given = tl.load(x + at, mask=has_row[:, None], other=0)
                block = source * steps + step
                d = tl.load(x_scales + block, mask=has_row, other=0.0)
                numbers, s, second, m = UNPACK(data, begins, step, has_out, width)
                n = tl.dot(given, numbers, out_dtype=tl.int32)
                if HALVES:
                    low = tl.where((k < STEP // 2)[None, :], given, 0)
                    of_low = tl.dot(low, numbers, out_dtype=tl.int32)
                    part = tl.fma(of_low.to(tl.float32), s[None, :] * d[:, None], part)
                    n, s = n - of_low, second
                part = tl.fma(n.to(tl.float32), s[None, :] * d[:, None], part)
                if MINIMUM:
                    sums = tl.load(x_sums + block, mask=has_row, other=0.0)
                    part = tl.fma(-m[None, :], (d * sums)[:, None], part)
        total += part
    where = target[:, None] * outs + of[None, :]
    if SPREAD:
        where += tl.program_id(2).to(tl.int64) * rows * outs
    tl.store(out + where, total, mask=has_row[:, None] & has_out[None, :])


@triton.jit
def _join(parts, out, count, segments, JOINED: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * JOINED + tl.arange(0, JOINED)
    total = tl.zeros((JOINED,), dtype=tl.float32)
    within, place = at < count, at
    for _ in range(segments):
        total += tl.load(parts + place, mask=within, other=0.0)
        place += count
    tl.store(out + at, total, mask=within)


def takes(matrix: Matrix, *, stacked: bool = False) -> bool:
    """Whether products with this matrix, or with each of a stack, are computed here."""
    kind = KINDS.get(matrix.codec.name)
    if kind is None:
        return False
    runs = matrix.scales is None or matrix.run >= matrix.width or matrix.run % kind.step == 0
    wanted = stacked or not kind.library
    return wanted and runs and (kind.floats or matrix.width % kind.step == 0)


class Operand(NamedTuple):
    """Rows as weights of a kind meet them."""

    numbers: torch.Tensor
    """[n, k]: int8, or bfloat16 (float32 with the same values on a processor, whose interpreter
    multiplies no bfloat16)."""
    scales: torch.Tensor | None
    """f32[n, k / 32] of bytes."""
    sums: torch.Tensor | None
    """f32[n, k / 32] of bytes that meet minimums."""


def operand(x: torch.Tensor, codec: str) -> Operand:
    """Rows f32[n, k] rounded as weights of this kind demand."""
    kind = KINDS[codec]
    if kind.floats:
        rounded = round_bf16(x) if x.device.type == "cpu" else x.bfloat16()
        return Operand(rounded.contiguous(), None, None)
    return Operand(*quantised(x, values_of_a_scale(codec, x.shape[1]), with_sums=kind.minimum))


def product(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    """x f32[n, width] times the matrix: f32[n, outs]."""
    return _launched(x, matrix, len(matrix.data), len(x), None)


def grouped(
    x: torch.Tensor, matrix: Matrix, outs: int, groups: Groups, sources: int = 1
) -> torch.Tensor:
    """Rows of x times matrices of a stack of `outs` rows each: f32[P, outs]. The result of place p
    is of row p // sources."""
    return _launched(x, matrix, outs, len(groups.order), groups, sources)


def tile_rows(codec: str, rows: int) -> int:
    """Rows of a tile where a matrix of this kind meets so many."""
    return MANY.rows if KINDS[codec].floats or rows > FEW.rows else FEW.rows


def _steps_in_a_row(kind: Kind, shape: TileShape) -> int:
    return max(1, UNDER_WAY // kind.step) if shape is FEW else 1


def _launched(
    x: torch.Tensor, matrix: Matrix, outs: int, rows: int, groups: Groups | None, sources: int = 1
) -> torch.Tensor:
    kind, width = KINDS[matrix.codec.name], x.shape[1]
    out = torch.empty((rows, outs), dtype=torch.float32, device=x.device)
    if not rows or not outs:
        return out
    given, steps = operand(x, matrix.codec.name), triton.cdiv(width, kind.step)
    if groups is None:
        of_tile, order, tiles = tile_rows(matrix.codec.name, rows), None, None
        row_tiles = triton.cdiv(rows, of_tile)
    else:
        order, of_tile, tiles = groups
        row_tiles = tiles.shape[1]
    shape = FEW if of_tile == FEW.rows else MANY
    grid = (row_tiles, triton.cdiv(outs, shape.outs))
    segments = triton.cdiv(width, SEGMENT)
    spread = segments > 1 and grid[0] * grid[1] < ENOUGH_PROGRAMS
    into = out.new_empty((segments, rows, outs)) if spread else out
    launch: Any = _kernel[(*grid, segments if spread else 1)]
    launch(
        given.numbers, given.scales, given.sums, matrix.data, matrix.scales, into, order, tiles,
        rows, outs, width, steps, matrix.data.shape[1], matrix.run or width,
        0 if matrix.scales is None else matrix.scales.shape[1], sources, row_tiles,
        ROWS=shape.rows, OUTS=shape.outs, STEP=kind.step, UNPACK=kind.unpack,
        HALVES=kind.halves, MINIMUM=kind.minimum, FLOATS=kind.floats,
        SCALES=matrix.scales is not None, SPREAD=spread, GROUPED=groups is not None,
        PER_SEGMENT=SEGMENT // kind.step, UNROLL=_steps_in_a_row(kind, shape),
        num_warps=shape.warps,
    )  # fmt: skip
    if spread:
        _join[(triton.cdiv(out.numel(), JOINED),)](into, out, out.numel(), segments, JOINED=JOINED)
    return out
