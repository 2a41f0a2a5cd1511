"""Products with quantised weights, bit for bit against the twin of docs/kernels.md's arithmetic."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.cpu import CpuOps
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu import twin
from tests.ops.cpu.cases import F32, LEVELS, QUANTISED, matrix, normal

# (outputs, blocks of 256): below and above a panel and two, below and above a block of k.
SHAPES = ((5, 1), (33, 2), (80, 5))


def tensor_of(codec: str, data: npt.NDArray[np.uint8]) -> Tensor:
    kind = get_codec(codec)
    width = data.shape[1] // kind.block_bytes * kind.block_elements
    return Tensor("w", (len(data), width), kind, data)


def with_scales(codec: str, data: npt.NDArray[np.uint8], d: float, m: float) -> Tensor:
    """The rows with every block's d and minimum set (MXFP4: an exponent for a scale of 1; NVFP4:
    d is 0 or 1)."""
    blocks = data.reshape(-1).view(get_codec(codec).layout)
    if codec == "IQ1_M":
        bits = int(np.array(d, "<f2").view("<u2"))
        nibbles = np.array([bits >> 4 * i & 15 for i in range(4)], "<u2")
        blocks["scales"] = blocks["scales"] & 0x0FFF | nibbles << 12
        return tensor_of(codec, data)
    if codec == "NVFP4":
        blocks["d"] = 0x40 if d else 0
        return tensor_of(codec, data)
    for field, value in (("d", d), ("m", m), ("dmin", m), ("e", 128)):
        if field in blocks.dtype.names:
            blocks[field] = value
    return tensor_of(codec, data)


@cache
def twins(codec: str, out: int, blocks: int, portable: bool) -> F32:
    """The twin's product for 21 rows; it knows two arithmetics, the portable and the fused."""
    parts = twin.split(codec, matrix(out, out, 256 * blocks, codec).data)
    return twin.product(parts, rows_with_zeros(256 * blocks), "portable" if portable else "avx2")


def rows_with_zeros(width: int) -> F32:
    x = normal(3, 21, width)
    x[4, :64] = 0
    return x


@pytest.mark.computes("products", "cpu", "bits", kinds=QUANTISED)
@pytest.mark.proves(
    "run", "[the arithmetic](kernels.md#quantised-weights), every bit", kinds=QUANTISED
)
@pytest.mark.parametrize("level", LEVELS)
def test_every_bit_is_the_twins(level: str) -> None:
    ops = CpuOps(level, 2)
    for codec in QUANTISED:
        for out, blocks in SHAPES:
            weight = ops.linear_weight([matrix(out, out, 256 * blocks, codec)])
            x, expected = (
                rows_with_zeros(256 * blocks), twins(codec, out, blocks, level == "portable")
            )  # fmt: skip
            for rows in (1, 3, 9, 21):
                got = ops.linear(np.ascontiguousarray(x[:rows]), weight)
                assert (got == expected[:rows]).all(), (codec, out, blocks, rows)


FILLS = (0x00, 0xFF, 0x7F, 0x80, 0xF0, 0x0F)
SIGNS = ((127, 127), (-127, -127), (127, -127))


@cache
def extreme_twins(codec: str, fill: int, signs: tuple[int, int], portable: bool) -> F32:
    """The twin's product for one row of activations, the same for every row."""
    x = np.tile(np.array(signs, np.float32), (1, 256))
    parts = twin.split(codec, filled(codec, fill).data)
    return twin.product(parts, x, "portable" if portable else "avx2")


def filled(codec: str, fill: int) -> Tensor:
    data = np.full((17, get_codec(codec).row_bytes(512)), fill, np.uint8)
    return with_scales(codec, data, 1.0, 1.0)


@pytest.mark.parametrize("level", LEVELS)
def test_extreme_bits_lose_nothing(level: str) -> None:
    """Where every bit of a block is set, or none is, against activations of -127 and 127: the
    largest integer sums there are, which a saturating product would cut."""
    ops = CpuOps(level, 1)
    for codec, fill in product(QUANTISED, FILLS):
        weight = ops.linear_weight([filled(codec, fill)])
        for signs in SIGNS:
            expected = extreme_twins(codec, fill, signs, level == "portable")
            for rows in (1, 8, 40):
                x = np.tile(np.array(signs, np.float32), (rows, 256))
                assert (ops.linear(x, weight) == expected).all(), (codec, fill, signs, rows)


@pytest.mark.parametrize("level", LEVELS)
def test_the_twin_is_the_codec(level: str) -> None:
    """scale * q - minimum, in that order, is what the codec decodes, and what embedding gives."""
    ops = CpuOps(level, 1)
    for codec in QUANTISED:
        tensor = matrix(1, 9, 512, codec)
        q, scale, minimum, _ = twin.split(codec, tensor.data)
        values = np.repeat(scale, 32 // scale.shape[2], axis=2) * q.astype(np.float32)
        if minimum is not None:
            values -= np.repeat(minimum, 32 // scale.shape[2], axis=2)
        assert (values.reshape(9, 512) == tensor.to_f32()).all(), codec
        got = ops.embedding(ops.embedding_weight(tensor), np.arange(9, dtype=np.int32))
        assert (got == tensor.to_f32()).all(), codec


@pytest.mark.parametrize("level", LEVELS)
def test_mxfp4_exponents(level: str) -> None:
    """Every exponent decodes as the codec says, but for 0 and 1: denormal scales are zero."""
    ops = CpuOps(level, 2)
    data = np.zeros((256, 17), np.uint8)
    data[:, 0] = np.arange(256)
    data[:, 1:] = 0x71 + np.arange(16)
    tensor = tensor_of("MXFP4", data)
    got = ops.embedding(ops.embedding_weight(tensor), np.arange(256, dtype=np.int32))
    assert (got[2:] == tensor.to_f32()[2:]).all()
    assert (got[:2] == 0).all()
    x = np.ones((1, 32), np.float32)
    assert (ops.linear(x, ops.linear_weight([tensor]))[0, :2] == 0).all()


def test_scales_and_minimums_of_zero_are_zero() -> None:
    for codec in QUANTISED:
        if codec == "MXFP4":
            continue
        data = np.full((20, get_codec(codec).row_bytes(256)), 0xA5, np.uint8)
        for level in LEVELS:
            ops = CpuOps(level, 1)
            weight = ops.linear_weight([with_scales(codec, data, 0.0, 0.0)])
            assert (ops.linear(normal(1, 3, 256), weight) == 0).all()


def test_packed_weights_are_as_large_as_the_file() -> None:
    for codec in QUANTISED:
        tensor = matrix(1, 64, 512, codec)
        packed = CpuOps(threads=1).linear_weight([tensor])
        most = 1.23 if codec == "TQ1_0" else 1.04  # whose digits are unpacked to two bits
        assert tensor.nbytes <= packed.nbytes <= most * tensor.nbytes, codec


def test_widths_of_part_of_a_block_are_refused() -> None:
    ops = CpuOps(threads=1)
    for codec in QUANTISED:
        kind = get_codec(codec)
        width = kind.block_elements + kind.block_elements // 2
        data = np.zeros((4, 2 * kind.block_bytes), np.uint8)
        bad = Tensor("w", (4, width), kind, data)
        with pytest.raises(ValueError, match=f"width {width} cannot be {codec}"):
            ops.linear_weight([bad])
        with pytest.raises(ValueError, match=f"width {width} cannot be {codec}"):
            ops.embedding_weight(bad)
