"""Products with 8 bits of folders, and with NF4: the bits of a GGUF kind with the same weights, and
exact sums where a row of activations has one scale.

That every level equals the arithmetic of docs/kernels.md to the last bit, with any float32 scale,
is what native/tests/linear_test.cpp shows.
"""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops import make_ops
from headrace.ops.cpu import CpuOps
from headrace.ops.packed_size import packed_bytes
from headrace.weights.codecs import EIGHT_BITS, GROUPED, NF4, NF4_NUMBERS, OF_FOLDERS, Q8_0
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import LEVELS, named, normal
from tests.ops.cpu.test_four_bits import ROWS, WIDTH, filled
from tests.ops.cpu.twin import apart, fused

F32 = np.float32
NEW = sorted({*EIGHT_BITS, NF4.name})
OF_ROWS = sorted(name for name in EIGHT_BITS if name.startswith("W"))
"""Kinds whose activations have a scale of a row."""


def whole(name: str, seed: int) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """A matrix of the kind, its numbers int64[ROWS, WIDTH], its scales float32[ROWS, blocks]."""
    kind, rng = OF_FOLDERS[name], np.random.default_rng(seed)
    size = kind.block_elements
    scales = rng.uniform(1e-3, 1e-1, (ROWS, WIDTH // size)).astype(F32)
    half = 8 if name.startswith("W4") else 128
    codes = rng.integers(0, 2 * half, (ROWS, WIDTH), np.uint8)
    stored = codes
    if half == 8:
        runs = codes.reshape(ROWS, -1, 2, 16)
        stored = runs[:, :, 0] | runs[:, :, 1] << np.uint8(4)
    return filled(kind, d=scales, qs=stored), codes.astype(np.int64) - half, scales


@pytest.mark.computes("products", "cpu", "bits", kinds=("I8_32", "I8_128", "U8_32", "U8_128"))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", [32, 128])
def test_whole_bytes_are_q8_0s_product(size: int, level: str) -> None:
    """With scales that halves hold; U8 too, with a zero point of 128."""
    ops, rng = CpuOps(level, 2), np.random.default_rng(2)
    scales = (rng.integers(1, 64, (ROWS, WIDTH // size)) * 2.0**-10).astype(F32)
    codes = rng.integers(0, 256, (ROWS, WIDTH), np.uint8)
    theirs = filled(Q8_0, d=scales.repeat(size // 32, axis=1), qs=(codes ^ 128).view(np.int8))
    ours = filled(EIGHT_BITS[f"I8_{size}"], d=scales, qs=codes)
    zeros = np.full(scales.shape, 128, np.uint8)
    unsigned = filled(EIGHT_BITS[f"U8_{size}"], d=scales, z=zeros, qs=codes)
    assert np.array_equal(ours.to_f32(), theirs.to_f32())
    assert np.array_equal(unsigned.to_f32(), theirs.to_f32())
    for count in (1, 20):
        x = normal(count, count, WIDTH)
        products = [ops.linear(x, ops.linear_weight([w])) for w in (ours, theirs, unsigned)]
        with named(count=count):
            assert np.array_equal(products[0], products[1])
            assert np.abs(products[2] - products[1]).max() < 1e-4


def rounded_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers and a scale for each row, halves to even: the formats' own rounding."""
    peaks = np.abs(x).max(axis=1, keepdims=True)
    return np.rint(x * (F32(127) / peaks)).astype(np.int64), peaks / F32(127)


@pytest.mark.computes("products", "cpu", "bits", kinds=OF_ROWS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OF_ROWS)
def test_a_row_of_activations_has_one_scale(name: str, level: str) -> None:
    """Its numbers' sums are exact in each tile and then meet both scales, tile after tile."""
    ops = CpuOps(level, 2)
    tensor, numbers, scales = whole(name, 7)
    weight = ops.linear_weight([tensor])
    of_tile = scales.repeat(tensor.codec.block_elements // 32, axis=1)
    fma = apart if level == "portable" else fused
    for count in (1, 20):
        x = normal(count, count, WIDTH)
        q, d = rounded_rows(x)
        want = np.zeros((count, ROWS), F32)
        for tile in range(WIDTH // 32):
            part = slice(32 * tile, 32 * tile + 32)
            n = (q[:, part] @ numbers[:, part].T).astype(F32)
            want = fma(n, of_tile[None, :, tile] * d, want)
        got = ops.linear(x, weight)
        with named(count=count):
            assert np.array_equal(got, want)
            reference = make_ops("reference")
            same = reference.linear(x, reference.linear_weight([tensor]))
            assert np.abs(got - same).max() <= 1e-5 * np.abs(same).max()


@pytest.mark.parametrize("level", LEVELS)
def test_with_one_tile_it_is_the_formats_integer_product(level: str) -> None:
    """float32(sum) * (scale of the row * scale of the token), no sum rounded."""
    ops = CpuOps(level, 1)
    kind = EIGHT_BITS["W8A8_32"]
    numbers = np.random.default_rng(3).integers(-128, 128, (ROWS, 32))
    scales = np.random.default_rng(4).uniform(1e-3, 1e-2, (ROWS, 1)).astype(F32)
    blocks = np.empty((ROWS, 1), kind.layout)
    blocks["d"], blocks["qs"] = scales, (numbers + 128)[:, None]
    tensor = Tensor("w", (ROWS, 32), kind, blocks.view(np.uint8).reshape(ROWS, -1))
    x = normal(5, 20, 32)
    q, d = rounded_rows(x)
    want = (q @ numbers.T).astype(F32) * (scales.T * d)
    assert np.array_equal(ops.linear(x, ops.linear_weight([tensor])), want)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_finite_shows_in_its_own_row(level: str) -> None:
    ops = CpuOps(level, 1)
    weight = ops.linear_weight([whole("W8A8_128", 1)[0]])
    x = normal(1, 20, WIDTH)
    clean = ops.linear(x, weight)
    for bad, place in ((np.nan, 5), (np.inf, 300)):
        spoilt = x.copy()
        spoilt[3, place] = bad
        got = ops.linear(spoilt, weight)
        others = np.arange(20) != 3
        assert not np.isfinite(got[3]).any() and np.array_equal(got[others], clean[others])


@pytest.mark.computes("products", "cpu", "bound", kinds=(NF4.name,))
@pytest.mark.parametrize("level", LEVELS)
def test_one_input_that_is_one_gives_each_weight_of_nf4(level: str) -> None:
    ops, rng = CpuOps(level, 1), np.random.default_rng(6)
    scales = rng.uniform(1e-3, 1e-1, (ROWS, WIDTH // 64)).astype(F32)
    tensor = filled(NF4, d=scales, qs=rng.integers(0, 256, (ROWS, WIDTH // 2), np.uint8))
    weight = ops.linear_weight([tensor])
    codes = tensor.data.view(NF4.layout)["qs"].reshape(ROWS, -1)
    values = np.stack([NF4_NUMBERS[codes & 15], NF4_NUMBERS[codes >> 4]], axis=2)
    expected = values.reshape(ROWS, WIDTH) * scales.repeat(64, axis=1)
    assert np.array_equal(tensor.to_f32(), expected)
    for count in (WIDTH, 1):
        x = np.eye(WIDTH, dtype=F32)[:count]
        assert np.array_equal(ops.linear(x, weight), expected.T[:count])


@pytest.mark.parametrize("name", NEW)
def test_bytes_and_rows_are_those_of_the_kind(name: str) -> None:
    kind, rng = OF_FOLDERS[name], np.random.default_rng(8)
    blocks = np.frombuffer(rng.bytes(ROWS * kind.row_bytes(WIDTH)), kind.layout).copy()
    blocks["d"] = rng.uniform(1e-3, 1e-1, len(blocks))
    tensor = Tensor("t", (ROWS, WIDTH), kind, blocks.view(np.uint8).reshape(ROWS, -1))
    ops = CpuOps("portable", 1)
    weight = ops.linear_weight([tensor])
    experts = ops.expert_weight([[tensor], [tensor]])
    assert weight.nbytes == packed_bytes(kind, ROWS, WIDTH)
    assert experts.nbytes == 2 * weight.nbytes
    ids = np.array([3, 0, 32], np.int32)
    rows = ops.embedding(ops.embedding_weight(tensor), ids)
    assert np.array_equal(rows, tensor.to_f32()[ids])


def test_four_bits_share_the_blocks_of_i4() -> None:
    for size in (32, 128):
        assert EIGHT_BITS[f"W4A8_{size}"].layout == GROUPED[f"I4_{size}"].layout
