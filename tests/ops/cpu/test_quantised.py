"""Products with quantised weights, bit for bit against the twin of docs/kernels.md's arithmetic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.cpu import CpuOps
from headrace.weights.codecs import get_codec
from headrace.weights.tensor import Tensor
from tests.ops.cpu import twin
from tests.ops.cpu.cases import LEVELS, QUANTISED, matrix, normal

# (outputs, blocks of 256): below and above a panel and two, below and above a block of k.
SHAPES = ((5, 1), (33, 2), (80, 5))


def tensor_of(codec: str, data: npt.NDArray[np.uint8]) -> Tensor:
    kind = get_codec(codec)
    width = data.shape[1] // kind.block_bytes * kind.block_elements
    return Tensor("w", (len(data), width), kind, data)


def with_scales(codec: str, data: npt.NDArray[np.uint8], d: float, m: float) -> Tensor:
    """The rows with every block's d and minimum set (MXFP4: an exponent for a scale of 1)."""
    blocks = data.reshape(-1).view(get_codec(codec).layout)
    for field, value in (("d", d), ("m", m), ("dmin", m), ("e", 128)):
        if field in blocks.dtype.names:
            blocks[field] = value
    return tensor_of(codec, data)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codec", QUANTISED)
def test_every_bit_is_the_twins(level: str, codec: str) -> None:
    ops = CpuOps(level, 2)
    for out, blocks in SHAPES:
        tensor = matrix(out, out, 256 * blocks, codec)
        weight = ops.linear_weight([tensor])
        x = normal(3, 21, 256 * blocks)
        x[4, :64] = 0
        expected = twin.product(twin.split(codec, tensor.data), x, level)
        for rows in (1, 3, 9, 21):
            assert (ops.linear(np.ascontiguousarray(x[:rows]), weight) == expected[:rows]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codec", QUANTISED)
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_extreme_bits_lose_nothing(level: str, codec: str, rows: int) -> None:
    """Where every bit of a block is set, or none is, against activations of -127 and 127: the
    largest integer sums there are, which a saturating product would cut."""
    ops = CpuOps(level, 1)
    row_bytes = get_codec(codec).row_bytes(512)
    for fill in (0x00, 0xFF, 0x7F, 0x80, 0xF0, 0x0F):
        data = np.full((17, row_bytes), fill, np.uint8)
        tensor = with_scales(codec, data, 1.0, 1.0)
        weight, parts = ops.linear_weight([tensor]), twin.split(codec, tensor.data)
        for pattern in ((127, 127), (-127, -127), (127, -127)):
            x = np.tile(np.array(pattern, np.float32), (rows, 256))
            assert (ops.linear(x, weight) == twin.product(parts, x, level)).all(), (fill, pattern)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codec", QUANTISED)
def test_the_twin_is_the_codec(level: str, codec: str) -> None:
    """scale * q - minimum, in that order, is what the codec decodes, and what embedding gives."""
    tensor = matrix(1, 9, 512, codec)
    q, scale, minimum = twin.split(codec, tensor.data)
    values = np.repeat(scale, 32 // scale.shape[2], axis=2) * q.astype(np.float32)
    if minimum is not None:
        values -= np.repeat(minimum, 32 // scale.shape[2], axis=2)
    assert (values.reshape(9, 512) == tensor.to_f32()).all()
    ops = CpuOps(level, 1)
    got = ops.embedding(ops.embedding_weight(tensor), np.arange(9, dtype=np.int32))
    assert (got == tensor.to_f32()).all()


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


@pytest.mark.parametrize("codec", QUANTISED)
def test_packed_weights_are_as_large_as_the_file(codec: str) -> None:
    tensor = matrix(1, 64, 512, codec)
    packed = CpuOps(threads=1).linear_weight([tensor])
    assert tensor.nbytes <= packed.nbytes <= 1.04 * tensor.nbytes


@pytest.mark.parametrize("codec", QUANTISED)
def test_widths_of_part_of_a_block_are_refused(codec: str) -> None:
    kind = get_codec(codec)
    width = kind.block_elements + kind.block_elements // 2
    data = np.zeros((4, 2 * kind.block_bytes), np.uint8)
    bad = Tensor("w", (4, width), kind, data)
    ops = CpuOps(threads=1)
    for call in (lambda: ops.linear_weight([bad]), lambda: ops.embedding_weight(bad)):
        with pytest.raises(ValueError, match=f"width {width} cannot be {codec}"):
            call()
