"""Weights of real shapes without a file or a copy: random blocks, put together on the device.

A model of 8 billion parameters takes a minute to draw on a host and seconds to copy; what a step
takes does not depend on values, but it may on how they are spread in memory, so that rows differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.random_rows import random_float8, random_rows
from headrace.ops.torch import TorchOps
from headrace.ops.torch.matrices import Matrix
from headrace.weights.codecs import F8_E4M3, Codec
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor

POOL = 4096
"""Different blocks of a kind. Any of them is as likely at any place, so that no two rows are alike.
"""
PLAIN_BLOCK = 256
"""Values of kinds without blocks that are drawn together."""
SLICE_BYTES = 64 << 20
"""Bytes put together at a time: the numbers of their blocks take up to four times as much."""
FP8_BLOCK = (128, 128)
"""Rows and columns of a matrix of F8_E4M3 that share a scale, as in DeepSeek's and Qwen's folders.
"""


def stand_in(name: str, shape: tuple[int, ...], codec: Codec) -> Tensor:
    """A matrix [..., rows, width] of which the host holds one row of zeros, whatever its size."""
    rows, width = shape[0], shape[-1]
    row = np.zeros((1, codec.row_bytes(width)), np.uint8)
    data = np.broadcast_to(row, (rows, row.shape[1]))
    if codec is not F8_E4M3:
        return Tensor(name, shape, codec, data)
    counts = tuple(-(-size // block) for size, block in zip((rows, width), FP8_BLOCK, strict=True))
    scales = np.broadcast_to(np.ones((1, 1), np.float32), counts)
    size = math.prod(counts) * scales.itemsize
    return ScaledTensor(name, shape, codec, data, scales=scales, block=FP8_BLOCK, scale_bytes=size)


def is_stand_in(tensor: Tensor) -> bool:
    """Whether its rows are one row of the host over and over."""
    return tensor.data.ndim == 2 and tensor.data.strides[0] == 0


class RandomOps(TorchOps):
    """The torch backend, which draws stand-ins on the device instead of copying them."""

    def _copied(self, parts: Sequence[Tensor]) -> Matrix:
        if not all(map(is_stand_in, parts)):
            return super()._copied(parts)
        codec, width = parts[0].codec, parts[0].shape[1]
        rows = sum(part.shape[0] for part in parts)
        generator = torch.Generator(self.device).manual_seed(crc32(parts[0].name.encode()))
        data = _drawn(codec, rows, width, generator, self.device)
        if codec is not F8_E4M3:
            return Matrix(codec, width, data, kernels=self.kernels, reproducible=self.reproducible)
        run = min(FP8_BLOCK[1], width)
        runs = -(-width // run)
        scales = torch.rand((rows, runs), generator=generator, device=self.device) + 0.5
        return Matrix(codec, width, data, scales, run, self.kernels, self.reproducible)


def _drawn(
    codec: Codec, rows: int, width: int, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """uint8[rows, row_bytes] of blocks of a pool of valid ones."""
    pool = torch.from_numpy(_pool(codec, width)).to(device)
    out = torch.empty((rows, codec.row_bytes(width)), dtype=torch.uint8, device=device)
    blocks = out.shape[1] // pool.shape[1]
    step = max(1, SLICE_BYTES // max(1, out.shape[1]))
    for at in range(0, rows, step):
        part = out[at : at + step]
        chosen = torch.randint(
            POOL, (len(part), blocks), generator=generator, device=device, dtype=torch.int32
        )
        part.copy_(pool[chosen.long()].flatten(1))
    return out


def _pool(codec: Codec, width: int) -> npt.NDArray[np.uint8]:
    """uint8[POOL, bytes] of blocks whose values have the deviation 1 / sqrt(width)."""
    rng = np.random.default_rng(width)
    values = codec.block_elements
    if values == 1:
        values = math.gcd(width, PLAIN_BLOCK)
    if codec is F8_E4M3:
        return random_float8(rng, POOL, values)
    return random_rows(codec, rng, POOL, values, width**-0.5)
