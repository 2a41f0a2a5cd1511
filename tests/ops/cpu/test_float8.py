"""Products with FP8 weights: what they equal bit for bit, and what a NaN does.

That every level equals the arithmetic of docs/kernels.md to the last bit is what
native/tests/linear_test.cpp shows, and tests/ops/cpu/test_linear.py that no batch shows.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from headrace.ops.cpu import CpuOps, _native
from headrace.weights.codecs import BF16, F8_E4M3
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import LEVELS, named, normal

SHAPES = ((33, 96, (33, 96)), (200, 384, (128, 128)), (17, 47, (1, 47)), (130, 320, (64, 256)))
"""Rows, columns and a block of each."""


def scaled(codes: np.ndarray, scales: np.ndarray, block: tuple[int, int]) -> ScaledTensor:
    return ScaledTensor(
        "w", codes.shape, F8_E4M3, codes, scales=scales, block=block, scale_bytes=scales.nbytes
    )


def every_code() -> np.ndarray:
    codes = np.arange(256, dtype=np.uint8)
    return codes[(codes & 0x7F) != 0x7F]


def test_every_code_is_the_number_that_ml_dtypes_gives() -> None:
    """Times its scale in float32, rounded once."""
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    scales = np.array([[0.3], [7e-5]], np.float32)
    tensor = scaled(codes, scales, (1, 128))
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scales
    assert np.array_equal(tensor.to_f32(), expected, equal_nan=True)
    assert np.isnan(expected).sum() == 2
    order = np.array([1, 0, 1], np.int32)
    assert np.array_equal(tensor.select_rows(order).to_f32(), expected[order], equal_nan=True)


@pytest.mark.parametrize("level", LEVELS)
def test_one_input_that_is_one_gives_each_weight(level: str) -> None:
    """Of every code, subnormal ones too: products with the unit matrix are the weights."""
    ops = CpuOps(level, 1)
    codes = np.resize(every_code(), (254, 256))
    scales = np.random.default_rng(0).uniform(1e-4, 1e-2, (2, 2)).astype(np.float32)
    tensor = scaled(codes, scales, (128, 128))
    weight = ops.linear_weight([tensor])
    for count in (256, 1):
        x = np.eye(256, dtype=np.float32)[:count]
        assert np.array_equal(ops.linear(x, weight), tensor.to_f32().T[:count])


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "avx512_bf16"])
def test_with_scales_that_are_powers_of_two_it_is_bf16s_product(level: str) -> None:
    """Every weight is a bfloat16 then; avx512_bf16 adds BF16's products in another order."""
    ops, rng = CpuOps(level, 2), np.random.default_rng(1)
    for rows, width, block in SHAPES:
        codes = rng.choice(every_code(), (rows, width))
        blocks = (-(-rows // block[0]), -(-width // block[1]))
        scales = np.exp2(rng.integers(-12, -3, blocks)).astype(np.float32)
        tensor = scaled(codes, scales, block)
        same = Tensor("b", tensor.shape, BF16, BF16.encode(tensor.to_f32()))
        assert np.array_equal(same.to_f32(), tensor.to_f32())
        x = normal(3, 40, width)
        with named(rows=rows, width=width, block=block):
            assert np.array_equal(
                ops.linear(x, ops.linear_weight([tensor])), ops.linear(x, ops.linear_weight([same]))
            )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_among_the_codes_shows_in_its_output_and_in_no_other(level: str, code: int) -> None:
    ops = CpuOps(level, 1)
    codes = np.full((20, 256), 0x38, np.uint8)
    x, scales = normal(2, 20, 256), np.ones((1, 1), np.float32)
    clean = ops.linear(x, ops.linear_weight([scaled(codes.copy(), scales, (20, 256))]))
    codes[3, 200] = code
    got = ops.linear(x, ops.linear_weight([scaled(codes, scales, (20, 256))]))
    others = np.arange(20) != 3
    assert np.isnan(got[:, 3]).all() and np.array_equal(got[:, others], clean[:, others])


@pytest.mark.parametrize(
    ("block", "shape", "words"),
    [
        ((128, 64), (1, 3), "block_columns 64 is not a multiple of 128, or all columns"),
        ((0, 128), (1, 2), "block_rows 0 is not 1 to 2147483647"),
        ((2**63 - 1, 128), (1, 2), f"block_rows {2**63 - 1} is not 1 to 2147483647"),
        ((16, 2**62), (2, 1), f"block_columns {2**62} is not .*at most 2147483647"),
        ((16, 128), (1, 2), "scales: dimension 0 is 1, must be 2"),
        ((16, 128), (2, 1), "scales: dimension 1 is 1, must be 2"),
    ],
)
def test_scales_that_do_not_fit_are_refused(
    block: tuple[int, int], shape: tuple[int, int], words: str
) -> None:
    codes, scales = np.zeros((20, 192), np.uint8), np.ones(shape, np.float32)
    with pytest.raises(ValueError, match=words):
        _native.ScaledRows(codes, scales, *block, None)
    with pytest.raises(ValueError, match="ScaledRows"):
        _native.Rows("F8_E4M3", 192, codes, None)
