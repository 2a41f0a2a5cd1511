"""Matrices on the device: the bytes of a file, decoded when they are multiplied by.

A matrix takes on the device what it takes in the file: rows are copied as they are stored, in the
order that the checkpoint asks for. F32 and BF16 (on a device that multiplies it) are read in place,
and so are kinds that kernels read; others are decoded a slice of rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.device import SLICE_VALUES
from headrace.ops.torch.decoders import decoded
from headrace.ops.torch.rounding import operand
from headrace.ops.torch.sums_and_products import padded, product, tile_rows
from headrace.weights.codecs import Codec
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

STAGED_BYTES = 32 << 20
"""Bytes on their way to a device at a time: large enough for its full rate, and soon reused."""


@dataclass(frozen=True)
class Matrix:
    """Rows of a matrix as they are stored."""

    codec: Codec
    width: int
    data: torch.Tensor
    """uint8[rows, row_bytes]"""
    scales: torch.Tensor | None = None
    """f32[rows, runs]; None where the rows hold all there is."""
    run: int = 0
    """Values of a row that share one of `scales`."""
    kernels: bool = False
    """Whether kernels in Triton multiply it, where they can."""
    reproducible: bool = True
    """Whether a row's product by a library is the same in every batch."""

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        beside = 0 if self.scales is None else self.scales.nbytes
        return self.data.nbytes + beside

    def rows(self, at: slice | torch.Tensor) -> torch.Tensor:
        """Some rows decoded: f32[n, width]."""
        values = decoded(self.codec, self.data[at])
        if self.scales is None:
            return values
        return values * self.scales[at].repeat_interleave(self.run, dim=1)[:, : self.width]

    def part(self, first: int, count: int) -> Matrix:
        """A matrix of `count` rows from `first` on, in the same memory."""
        rows = slice(first, first + count)
        scales = None if self.scales is None else self.scales[rows]
        return replace(self, data=self.data[rows], scales=scales)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """x f32[n, width] times the matrix, not rounded in between: f32[n, rows]."""
        device = x.device
        if self.kernels:
            from headrace.ops.torch.triton import products

            if products.takes(self):
                return products.product(x, self)
        tile = tile_rows(device, len(x), reproducible=self.reproducible)
        whole = padded(operand(x, self.codec.name), tile)
        out = torch.empty((len(whole), len(self.data)), dtype=torch.float32, device=device)
        if self.codec.name == "F32":
            product(whole, self.data.view(torch.float32), out, tile)
        elif self.codec.name == "BF16" and device.type != "cpu":
            product(whole.bfloat16(), self.data.view(torch.bfloat16), out, tile)
        else:
            step = max(1, SLICE_VALUES // max(1, self.width))
            for at in range(0, len(self.data), step):
                part = self.rows(slice(at, at + step))
                product(whole, part, out[:, at : at + step], tile)
        return out[: len(x)]


def matrix_of(
    parts: Sequence[Tensor],
    device: torch.device,
    *,
    kernels: bool = False,
    reproducible: bool = True,
) -> Matrix:
    """Matrices of one kind and width, one above the other, copied to the device part by part."""
    codec, width = parts[0].codec, parts[0].shape[1]
    data = torch.empty(
        (sum(part.shape[0] for part in parts), codec.row_bytes(width)),
        dtype=torch.uint8, device=device,
    )  # fmt: skip
    start = 0
    for part in parts:
        copy_rows(part.data, part.row_order, data[start : start + part.shape[0]])
        start += part.shape[0]
    scaled = [part for part in parts if isinstance(part, ScaledTensor)]
    if not scaled:
        return Matrix(codec, width, data, kernels=kernels, reproducible=reproducible)
    run = math.gcd(*(min(part.block[1], width) for part in scaled))
    scales = np.concatenate([_row_scales(part, run) for part in scaled])
    held = on_device(scales, device)
    return Matrix(codec, width, data, held, run, kernels, reproducible)


def _row_scales(part: ScaledTensor, run: int) -> npt.NDArray[np.float32]:
    """f32[rows, runs]: of every row a scale for each `run` values, which divides a block's."""
    stored = np.arange(len(part.data)) if part.row_order is None else part.row_order
    of_rows = part.scales[stored // part.block[0]]
    scales: npt.NDArray[np.float32] = of_rows[:, np.arange(0, part.shape[1], run) // part.block[1]]
    return scales


def copy_rows(
    stored: npt.NDArray[np.uint8], order: npt.NDArray[np.int32] | None, into: torch.Tensor
) -> None:
    """Copy rows uint8[n, row_bytes], perhaps of a mapped file, into a tensor of the device.

    order: row i of the result is row order[i]; None leaves them as they are. To a device of its own
    they go through pinned memory, a piece at a time, so that reading the file and copying overlap.
    """
    if into.device.type == "cpu":
        if order is None:
            np.copyto(into.numpy(), stored)
        else:
            np.take(stored, order, axis=0, out=into.numpy(), mode="clip")
        return
    step = max(1, STAGED_BYTES // max(1, into.shape[1]))
    for at in range(0, len(into), step):
        part = stored[at : at + step] if order is None else stored[order[at : at + step]]
        staged = torch.empty(part.shape, dtype=torch.uint8, pin_memory=True)
        np.copyto(staged.numpy(), part)
        into[at : at + step].copy_(staged, non_blocking=True)


def on_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of a small array, such as a vector or the ids of a step."""
    return torch.from_numpy(np.array(array, order="C")).to(device)
