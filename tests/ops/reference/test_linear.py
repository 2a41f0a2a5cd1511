"""Linear, norms, embedding, activation: what the reference computes, and that rows stand alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import quantise_row
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor

CODECS = ("F32", "F16", "BF16", "Q8_0")
Floats = npt.NDArray[np.float32]


@pytest.fixture
def ops() -> ReferenceOps:
    return ReferenceOps()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def tensor(values: Floats, codec: str = "F32", name: str = "w") -> Tensor:
    kind = get_codec(codec)
    return Tensor(name, values.shape, kind, kind.encode(values.reshape(-1, values.shape[-1])))


def close(actual: Floats, expected: npt.NDArray[np.float64]) -> None:
    """Equal but for the one rounding to float32 at the end and float64's own."""
    np.testing.assert_allclose(actual, expected, rtol=2.0**-23, atol=1e-12)


@pytest.mark.parametrize("codec", ("F32", "F16"))
def test_f32_and_f16_weights_leave_activations_alone(
    ops: ReferenceOps, rng: np.random.Generator, codec: str
) -> None:
    weight, x = tensor(normal(rng, 24, 40), codec), normal(rng, 5, 40)
    expected = x.astype(np.float64) @ weight.to_f32().T.astype(np.float64)
    close(ops.linear(x, ops.linear_weight([weight])), expected)


def test_bf16_weights_round_activations_to_nearest_even(
    ops: ReferenceOps, rng: np.random.Generator
) -> None:
    weight, x = tensor(normal(rng, 24, 40), "BF16"), normal(rng, 5, 40)
    # Halfway between two bfloat16 values: 1 + 2^-8 goes down to even, 1 + 3 * 2^-8 up.
    x[0, :2] = 1 + 2.0**-8, 1 + 3 * 2.0**-8
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert rounded[0, 0] == 1 and rounded[0, 1] == 1 + 2.0**-6
    out = ops.linear(x, ops.linear_weight([weight]))
    close(out, rounded @ weight.to_f32().T.astype(np.float64))
    assert (out != ops.linear(x, ops.linear_weight([tensor(weight.to_f32())]))).any()


def test_q8_0_multiplies_integers_by_both_scales(
    ops: ReferenceOps, rng: np.random.Generator
) -> None:
    weight, x = tensor(normal(rng, 3, 64), "Q8_0"), normal(rng, 2, 64)
    out = ops.linear(x, ops.linear_weight([weight]))
    for row in range(2):
        for column in range(3):
            total = 0.0
            for block in range(2):
                raw = weight.data[column, block * 34 : block * 34 + 34]
                scale = float(raw[:2].view(np.float16)[0])
                values = x[row, block * 32 : block * 32 + 32]
                amax = np.abs(values).max()
                quants = [int(np.rint(v * (np.float32(127) / amax))) for v in values]
                products = zip(raw[2:].view(np.int8).tolist(), quants, strict=True)
                total += scale * float(amax / np.float32(127)) * sum(a * b for a, b in products)
            assert out[row, column] == pytest.approx(total, rel=1e-7)


def test_activations_quantise_by_the_formula() -> None:
    row = np.zeros(96, np.float32)
    row[:4] = 127, 2.5, -3.5, 0.49
    row[64:] = 1e-39  # so small that 127 / amax overflows
    scales, quants = quantise_row(row)
    assert scales.tolist() == [1, 0, 0]
    assert quants[0, :4].tolist() == [127, 2, -4, 0]  # halves go to even
    assert not quants[1:].any()


@pytest.mark.parametrize("codec", CODECS)
def test_a_row_does_not_depend_on_the_others(
    ops: ReferenceOps, rng: np.random.Generator, codec: str
) -> None:
    weight = ops.linear_weight([tensor(normal(rng, 70, 96), codec)])
    norm = Norm(normal(rng, 96), 1e-5)
    x, residual = normal(rng, 33, 96), normal(rng, 33, 70)
    together = ops.linear(x, weight, norm=norm, residual=residual)
    for step in (1, 2, 7):
        pieces = [
            ops.linear(x[i : i + step], weight, norm=norm, residual=residual[i : i + step])
            for i in range(0, 33, step)
        ]
        assert np.array_equal(np.concatenate(pieces), together)


def test_a_row_of_a_large_matrix_does_not_depend_on_the_slices(ops: ReferenceOps) -> None:
    rng = np.random.default_rng(0)
    matrix = normal(rng, 300, 2048)  # several slices
    whole = ops.linear(matrix[:1], ops.linear_weight([tensor(matrix)]))
    for first in (0, 100, 299):
        part = ops.linear(matrix[:1], ops.linear_weight([tensor(matrix[first:])]))
        assert np.array_equal(whole[:, first:], part)


@pytest.mark.parametrize("codec", CODECS)
def test_fused_parts_equal_separate_ones(
    ops: ReferenceOps, rng: np.random.Generator, codec: str
) -> None:
    parts = [tensor(normal(rng, rows, 64), codec) for rows in (8, 4, 4)]
    biases = [tensor(normal(rng, 8)), None, tensor(normal(rng, 4))]
    x = normal(rng, 3, 64)
    fused = ops.linear_weight(parts, bias=biases)
    assert (fused.out_features, fused.in_features, fused.codec) == (16, 64, codec)
    assert fused.nbytes == sum(part.nbytes for part in parts)
    separate = [
        ops.linear(x, ops.linear_weight([part], bias=[bias]))
        for part, bias in zip(parts, biases, strict=True)
    ]
    assert np.array_equal(ops.linear(x, fused), ops.concat(separate))


@pytest.mark.parametrize("codec", CODECS)
def test_row_order_is_that_of_the_tensor(
    ops: ReferenceOps, rng: np.random.Generator, codec: str
) -> None:
    weight, x = tensor(normal(rng, 8, 64), codec), normal(rng, 3, 64)
    order = np.array([3, 1, 7, 0, 2, 6, 5, 4], np.int32)
    out = ops.linear(x, ops.linear_weight([weight.select_rows(order)]))
    assert np.array_equal(out, ops.linear(x, ops.linear_weight([weight]))[:, order])
    table = ops.embedding_weight(weight.select_rows(order))
    assert np.array_equal(ops.embedding(table, order), weight.to_f32()[order[order]])


def test_norm_inside_linear_is_rms_norm_before_it(
    ops: ReferenceOps, rng: np.random.Generator
) -> None:
    weight = ops.linear_weight([tensor(normal(rng, 8, 64), "BF16")])
    x, norm = normal(rng, 3, 64), Norm(normal(rng, 64), 1e-5)
    assert np.array_equal(ops.linear(x, weight, norm=norm), ops.linear(ops.norm(x, norm), weight))
    wide = x.astype(np.float64)
    expected = wide * norm.weight / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5)
    close(ops.norm(x, norm), expected)


def test_vector_adds_the_offset(ops: ReferenceOps) -> None:
    values = np.array([0.5, -1.0], np.float32)
    assert ops.vector(tensor(values), offset=1.0).tolist() == [1.5, 0.0]


def test_gated_activation(ops: ReferenceOps, rng: np.random.Generator) -> None:
    gate_up = normal(rng, 3, 8)
    gate_up[0, 0] = -1e4  # exp overflows; the limit is 0
    gate, up = gate_up[:, :4].astype(np.float64), gate_up[:, 4:]
    with np.errstate(over="ignore"):
        close(ops.gated_activation(gate_up, "silu"), gate / (1 + np.exp(-gate)) * up)


def test_empty_batches_have_empty_results(ops: ReferenceOps, rng: np.random.Generator) -> None:
    weight = ops.linear_weight([tensor(normal(rng, 8, 64))])
    assert ops.linear(np.empty((0, 64), np.float32), weight).shape == (0, 8)
    assert ops.take_rows(normal(rng, 3, 4), np.array([], np.int32)).shape == (0, 4)


def test_what_does_not_fit_is_refused(ops: ReferenceOps, rng: np.random.Generator) -> None:
    f32, q8 = tensor(normal(rng, 4, 64)), tensor(normal(rng, 4, 64), "Q8_0")
    weight = ops.linear_weight([f32])
    with pytest.raises(ValueError, match=r"codecs \['F32', 'Q8_0'\]"):
        ops.linear_weight([f32, q8])
    with pytest.raises(ValueError, match=r"widths \[32, 64\]"):
        ops.linear_weight([f32, tensor(normal(rng, 4, 32))])
    with pytest.raises(ValueError, match="takes matrices"):
        ops.linear_weight([tensor(normal(rng, 4))])
    with pytest.raises(ValueError, match="does not fit"):
        ops.linear_weight([f32], bias=[tensor(normal(rng, 3))])
    with pytest.raises(ValueError, match=r"float32\[N, 64\]"):
        ops.linear(normal(rng, 2, 32), weight)
    with pytest.raises(ValueError, match="residual has 1 rows, x has 2"):
        ops.linear(normal(rng, 2, 64), weight, residual=normal(rng, 1, 4))
    with pytest.raises(ValueError, match=r"token id 4 is not in \[0, 4\)"):
        ops.embedding(ops.embedding_weight(f32), np.array([0, 4], np.int32))
    with pytest.raises(ValueError, match=r"row 2 is not in \[0, 2\)"):
        ops.take_rows(normal(rng, 2, 4), np.array([2], np.int32))
    with pytest.raises(ValueError, match="not that of a vector"):
        ops.vector(f32)
    with pytest.raises(ValueError, match="'relu6' is unknown"):
        ops.gated_activation(normal(rng, 2, 4), "relu6")  # type: ignore[arg-type]
