"""Linear: against the reference with a bound from error analysis, and against itself with ==."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.weights.codecs import get_codec
from headrace.weights.files.mapped import map_file
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu import twin
from tests.ops.cpu.cases import (
    CODECS,
    F32,
    LEVELS,
    QUANTISED,
    UNIT,
    matrix,
    named,
    normal,
    vector,
    whole_blocks,
)

REFERENCE = ReferenceOps()

# (outputs, inputs): tails of 16 outputs and of 32 inputs, one and many panels, one and many tiles.
SHAPES = ((1, 32), (16, 64), (33, 96), (100, 1056), (250, 160))
# Rows of quantised kinds are whole blocks; the others may end anywhere.
TAIL_SHAPES = ((3, 1), (17, 2), (48, 33), (31, 172), (64, 47))


def shapes_of(codec: str) -> list[tuple[int, int]]:
    whole = dict.fromkeys((out, whole_blocks(codec, width)) for out, width in SHAPES)
    return [*whole, *(() if codec in QUANTISED else TAIL_SHAPES)]


def bound(x: np.ndarray, weight: np.ndarray, *added: np.ndarray) -> np.ndarray:
    """What rounding alone may change, element by element (Higham, chapter 3).

    A term of a tile passes at most 16 products and 16 sums of its chain (they are one rounding
    where fused), the sum of the chains, one sum per tile, bias and residual.
    """
    tiles = -(-x.shape[1] // 32)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    for part in added:
        magnitude = magnitude + np.abs(part)
    return (32 + 1 + tiles + 2 + 1) * UNIT * magnitude


def quantised_bound(x: np.ndarray, tensor: Tensor, *added: np.ndarray) -> np.ndarray:
    """The same for quantised weights, whose operands both sides round alike and whose sums inside a
    group are exact.

    The sum of a group passes the product of its scales and the product with it, then at most four
    sums of each tile (two groups, with minimums), bias and residual; the decoded weights that the
    reference takes are rounded twice. A tile of a block that is summed in whole numbers passes
    fewer: eight sums in its block, three roundings with what multiplies this, and one sum of each
    block. Minimums are terms of their own: they may cancel.
    """
    parts = twin.split(tensor.codec.name, tensor.data)
    size = 32 // parts.scale.shape[2]
    weight = np.abs(np.repeat(parts.scale, size, axis=2) * parts.q)
    if parts.minimum is not None:
        weight = weight + np.abs(np.repeat(parts.minimum, size, axis=2))
    q, d = twin.quantise(x, parts.of_scale)
    operand = np.abs(q * d[..., None].astype(np.float64)).reshape(x.shape)
    magnitude = operand @ weight.reshape(len(weight), -1).astype(np.float64).T
    for part in added:
        magnitude = magnitude + np.abs(part)
    return (2 + 4 * q.shape[1] + 2 + 2 + 1) * UNIT * magnitude


@cache
def expected_and_limit(codec: str, out: int, width: int, count: int) -> tuple[F32, np.ndarray]:
    """The reference's result and what rounding may change of it, once for all levels."""
    tensor, bias = matrix(1, out, width, codec), vector(2, out)
    x, residual = normal(3, count, width), normal(4, count, out)
    weight = REFERENCE.linear_weight([tensor], bias=[bias])
    if codec in QUANTISED:
        limit = quantised_bound(x, tensor, bias.to_f32(), residual)
    else:
        limit = bound(x, tensor.to_f32(), bias.to_f32(), residual)
    if codec in ("BF16", "F8_E4M3"):
        limit = limit * 1.01  # x is rounded to bfloat16, which is within 2^-9 of it
    if codec == "F8_E4M3":
        limit = limit * 1.06  # two roundings more in 36: of the decoded weight, of the scaled sum
    return REFERENCE.linear(x, weight, residual=residual), limit


def check_against_the_reference(ops: CpuOps, codec: str, out: int, width: int) -> None:
    packed = ops.linear_weight([matrix(1, out, width, codec)], bias=[vector(2, out)])
    for count in (1, 5, 21):
        expected, limit = expected_and_limit(codec, out, width, count)
        got = ops.linear(normal(3, count, width), packed, residual=normal(4, count, out))
        error = np.abs(got - expected)
        with named(codec=codec, out=out, width=width, rows=count):
            assert (error <= limit).all(), f"worst {(error / limit).max():.2f} of the bound"


@pytest.mark.computes("products", "cpu", "bound", kinds=CODECS)
@pytest.mark.computes("products", "reference", "bound", kinds=CODECS)
@pytest.mark.proves("run", "the reference, within rounding", kinds=("F32", "F16", "BF16"))
@pytest.mark.parametrize("level", LEVELS)
def test_agrees_with_the_reference(level: str) -> None:
    """Each codec with one shape, another for each level."""
    ops = CpuOps(level, 2)
    for index, codec in enumerate(CODECS):
        shapes = shapes_of(codec)
        check_against_the_reference(
            ops, codec, *shapes[(index + LEVELS.index(level)) % len(shapes)]
        )


@pytest.mark.smoke
@pytest.mark.matrix
@pytest.mark.parametrize("level", LEVELS)
def test_every_shape_agrees_with_the_reference(level: str) -> None:
    ops = CpuOps(level, 2)
    for codec in CODECS:
        for out, width in shapes_of(codec):
            check_against_the_reference(ops, codec, out, width)


ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 25, 48, 49, 96, 97, 512)


def check_rows_alone(level: str, codec: str, with_norm: bool, row_counts: Sequence[int]) -> None:
    """Any rows alone are what they are among 513, with 1, 2 and 3 threads."""
    width, out = whole_blocks(codec, 352), 200
    norm = Norm(normal(7, 1, width)[0], 1e-6) if with_norm else None
    x, residual = normal(5, 513, width), normal(6, 513, out)
    results = []
    for threads in (1, 2, 3):
        ops = CpuOps(level, threads)
        weight = ops.linear_weight([matrix(8, out, width, codec)])
        whole = ops.linear(x, weight, norm=norm, residual=residual)
        results.append(whole)
        for rows in row_counts:
            for start in (0, 513 - rows):
                part = slice(start, start + rows)
                alone = ops.linear(
                    np.ascontiguousarray(x[part]), weight, norm=norm,
                    residual=np.ascontiguousarray(residual[part]),
                )  # fmt: skip
                assert (alone == whole[part]).all(), (codec, with_norm, threads, rows, start)
    assert (results[0] == results[1]).all(), (codec, with_norm)
    assert (results[0] == results[2]).all(), (codec, with_norm)


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_a_row_does_not_depend_on_the_batch_or_the_threads(level: str) -> None:
    """Numbers of rows below, at and above a tile; with a norm and without in turn."""
    for index, codec in enumerate(CODECS):
        check_rows_alone(level, codec, bool((index + LEVELS.index(level)) % 2), (1, 5, 17))


@pytest.mark.matrix
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("with_norm", [False, True])
def test_no_number_of_rows_shows(level: str, with_norm: bool) -> None:
    for codec in CODECS:
        check_rows_alone(level, codec, with_norm, ROW_COUNTS)


@pytest.mark.parametrize("level", LEVELS)
def test_parts_biases_and_row_orders_are_stacked(level: str) -> None:
    ops = CpuOps(level, 2)
    order = np.random.default_rng(0).permutation(37).astype(np.int32)
    for codec in CODECS:
        width = whole_blocks(codec, 64)
        first, second = matrix(1, 37, width, codec).select_rows(order), matrix(2, 21, width, codec)
        x = normal(3, 4, width)
        fused = ops.linear(x, ops.linear_weight([first, second], bias=[None, vector(4, 21)]))
        plain = ops.linear(x, ops.linear_weight([matrix(1, 37, width, codec)]))
        assert (fused[:, :37] == plain[:, order]).all(), codec
        apart = ops.linear(x, ops.linear_weight([second], bias=[vector(4, 21)]))
        assert (fused[:, 37:] == apart).all(), codec


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [1, 40])
def test_f32_operands_are_never_rounded(level: str, rows: int) -> None:
    """1 + 2^-20 is no bf16, f16 or TF32 number; neither operand may lose it."""
    ops = CpuOps(level, 1)
    value = np.float32(1 + 2.0**-20)
    one = np.zeros((16, 32), np.float32)
    one[:, 3] = 1
    fine = one * value
    kind = get_codec("F32")

    def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        tensor = Tensor("w", w.shape, kind, kind.encode(w))
        return ops.linear(np.repeat(x[:1], rows, axis=0), ops.linear_weight([tensor]))

    assert (product(fine, one) == value).all()
    assert (product(one, fine) == value).all()
    tensor = Tensor("h", (16, 32), get_codec("F16"), get_codec("F16").encode(one))
    half = ops.linear_weight([tensor])
    assert (ops.linear(np.repeat(fine[:1], rows, axis=0), half) == value).all()


@pytest.mark.parametrize("level", LEVELS)
def test_bf16_rounds_activations_to_nearest_even(level: str) -> None:
    ops = CpuOps(level, 1)
    one = np.zeros((16, 32), np.float32)
    one[:, 0] = 1
    kind = get_codec("BF16")
    weight = ops.linear_weight([Tensor("w", (16, 32), kind, kind.encode(one))])
    given = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -1 - 2.0**-8, 3.4e38]
    rounded = [1.0, 1 + 2.0**-6, 1 + 2.0**-7, -1.0, np.inf]
    x = np.zeros((5, 32), np.float32)
    x[:, 0] = given
    with np.errstate(over="ignore"):
        assert (ops.linear(x, weight)[:, 0] == np.array(rounded, np.float32)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_q8_0_extremes(level: str) -> None:
    """Weights of -128 and 127 against activations of -127 and 127 leave no integer overflow."""
    ops = CpuOps(level, 1)
    kind = get_codec("Q8_0")
    data = np.zeros((32, 34), np.uint8)
    data[:, :2] = np.array([1.0], np.float16).view(np.uint8)
    data[:16, 2:] = 0x80  # -128
    data[16:, 2:] = 127
    weight = ops.linear_weight([Tensor("w", (32, 32), kind, data)])
    for sign in (1, -1):
        x = np.full((9, 32), sign * 127, np.float32)
        got = ops.linear(x, weight)
        assert (got[:, :16] == sign * 127 * -128 * 32).all()
        assert (got[:, 16:] == sign * 127 * 127 * 32).all()
    assert (ops.linear(np.zeros((2, 32), np.float32), weight) == 0).all()
    assert (ops.linear(np.full((2, 32), 1e-37, np.float32), weight) == 0).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_its_own_row_only(level: str, bad: float) -> None:
    ops = CpuOps(level, 2)
    others = np.arange(20) != 7
    for codec in CODECS:
        width = whole_blocks(codec, 64)
        weight = ops.linear_weight([matrix(1, 40, width, codec)])
        x = normal(2, 20, width)
        clean = ops.linear(x, weight)
        x[7, 33] = bad
        with np.errstate(invalid="ignore"):
            spoilt = ops.linear(x, weight)
        assert (spoilt[others] == clean[others]).all(), codec
        assert not np.isfinite(spoilt[7]).any(), codec


@pytest.mark.parametrize("level", LEVELS)
def test_f16_subnormal_weights_count(level: str) -> None:
    ops = CpuOps(level, 1)
    kind = get_codec("F16")
    values = np.zeros((16, 32), np.float32)
    values[:, 0] = [2.0**-24, 2.0**-14, -(2.0**-24), 1023 * 2.0**-24] * 4
    weight = ops.linear_weight([Tensor("w", (16, 32), kind, kind.encode(values))])
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 2.0**10
    assert (ops.linear(x, weight)[0] == values[:, 0] * 2.0**10).all()


def test_no_rows_give_no_rows() -> None:
    ops = CpuOps(threads=2)
    weight = ops.linear_weight([matrix(1, 40, 64, "Q8_0")])
    assert ops.linear(np.empty((0, 64), np.float32), weight).shape == (0, 40)


@pytest.mark.parametrize("codec", ["F32", "Q8_0", "Q4_K"])
def test_rows_of_a_file_are_packed_as_those_of_memory(codec: str, tmp_path: Path) -> None:
    width = whole_blocks(codec, 160)
    parts = [matrix(out, out, width, codec) for out in (33, 16, 40)]
    (tmp_path / "file").write_bytes(b"before" + b"".join(part.data.tobytes() for part in parts))
    at, mapped = 6, []
    for part in parts:
        rows = map_file(tmp_path / "file")[at : at + part.nbytes].reshape(part.data.shape)
        mapped.append(replace(part, data=rows))
        at += part.nbytes
    order = np.arange(40, dtype=np.int32)[::-1]
    parts[2], mapped[2] = parts[2].select_rows(order), mapped[2].select_rows(order)
    ops = CpuOps("auto", threads=2)
    x = normal(1, 3, width)
    of_memory, of_file = (ops.linear(x, ops.linear_weight(each)) for each in (parts, mapped))
    assert np.array_equal(of_memory, of_file)
