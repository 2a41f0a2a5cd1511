"""Products with 4 bits of folders: the bits of a GGUF kind wherever that can hold the same weights.

That every level equals the arithmetic of docs/kernels.md to the last bit, with any float32 scale,
is what native/tests/linear_test.cpp shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.packed_size import packed_bytes
from headrace.weights.codecs import GROUPED, NVFP4, Q4_0, Q4_1, Codec
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import LEVELS, named, normal

ROWS, WIDTH = 33, 384


def filled(kind: Codec, **fields: npt.NDArray[Any]) -> Tensor:
    """A matrix of the kind with these fields, each of [ROWS, blocks, ...]."""
    blocks = np.empty((ROWS, WIDTH // kind.block_elements), kind.layout)
    for name, values in fields.items():
        blocks[name] = values.reshape(*blocks.shape, *blocks.dtype[name].shape)
    return Tensor(kind.name, (ROWS, WIDTH), kind, blocks.view(np.uint8).reshape(ROWS, -1))


def alike(name: str, seed: int) -> tuple[Tensor, Tensor]:
    """A matrix of the kind, and one of GGUF's with the same weights."""
    kind, rng = GROUPED[name], np.random.default_rng(seed)
    size = kind.block_elements
    groups = (ROWS, WIDTH // size)
    if name.startswith("E2M1"):
        codes = rng.integers(1, 127, (ROWS, WIDTH // 16), np.uint8)
        pairs = rng.integers(0, 256, (ROWS, WIDTH // 16, 8), np.uint8)
        halves = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(ROWS, WIDTH // 32, 2, 16)
        packed = halves[:, :, 0] | halves[:, :, 1] << np.uint8(4)
        one = np.ones(groups, np.float32)
        return filled(kind, d=one, e=codes, qs=packed), filled(NVFP4, d=codes, qs=pairs)
    packed = rng.integers(0, 256, (ROWS, WIDTH // 32, 16), np.uint8)
    # Of few bits, so that a half holds a scale times a zero point.
    scales = (rng.integers(1, 64, groups) * 2.0**-10).astype(np.float32)
    spread = scales.repeat(size // 32, axis=1)
    if name.startswith("I4"):
        return filled(kind, d=scales, qs=packed), filled(Q4_0, d=spread, qs=packed)
    zeros = rng.integers(0, 17, groups)
    minimums = -spread * zeros.repeat(size // 32, axis=1)
    other = filled(Q4_1, d=spread, m=minimums, qs=packed)
    return filled(kind, d=scales, z=zeros, qs=packed), other


@pytest.mark.computes("products", "cpu", "bits", kinds=GROUPED)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", GROUPED)
def test_it_is_the_product_of_a_gguf_kind_with_the_same_weights(name: str, level: str) -> None:
    ops = CpuOps(level, 2)
    ours, theirs = alike(name, 5)
    assert np.array_equal(ours.to_f32(), theirs.to_f32())
    weights = [ops.linear_weight([tensor]) for tensor in (ours, theirs)]
    experts = [ops.expert_weight([[tensor], [tensor]]) for tensor in (ours, theirs)]
    for count in (1, 20):
        x = normal(count, count, WIDTH)
        with named(count=count):
            assert np.array_equal(*(ops.linear(x, weight) for weight in weights))
    assert weights[0].nbytes == packed_bytes(ours.codec, ROWS, WIDTH)
    assert experts[0].nbytes == 2 * weights[0].nbytes


def test_a_scale_that_no_half_holds_is_kept_whole() -> None:
    """float32 and not rounded to a half: twice the scale is twice the product, to the last bit."""
    ops = CpuOps("portable", 1)
    kind = GROUPED["I4_128"]
    packed = np.random.default_rng(1).integers(0, 256, (ROWS, WIDTH // 32, 16), np.uint8)
    x = normal(1, 3, WIDTH)
    products = [
        ops.linear(x, ops.linear_weight([filled(kind, d=np.full((ROWS, 3), d), qs=packed)]))
        for d in (np.float32(1e-9), np.float32(2e-9), np.float32(1.0000001e-9))
    ]
    assert np.array_equal(2 * products[0], products[1])
    assert (products[0] != products[2]).any() and products[0].any()
