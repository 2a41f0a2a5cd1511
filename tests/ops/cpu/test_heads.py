"""Products of heads have the bits of `linear` of each head's matrix and columns."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops import make_ops
from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.reference import ReferenceOps
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import CODECS, F32, LEVELS, matrix, named, normal, whole_blocks

HEADS = 3


def heads_of(codec: str, out: int, width: int, count: int = HEADS) -> list[Tensor]:
    return [matrix(200 + head, out, width, codec) for head in range(count)]


def one_by_one(ops: Ops, x: F32, heads: list[Tensor], kept: int, beside: F32 | None) -> F32:
    """The definition, by `linear`."""
    width = x.shape[1] // len(heads)
    parts = []
    for number, head in enumerate(heads):
        columns = x[:, number * width : (number + 1) * width]
        rows = np.ascontiguousarray(columns[:, kept:])
        parts += [columns[:, :kept], ops.linear(rows, ops.linear_weight([head]))]
    return np.concatenate([*parts, *([] if beside is None else [beside])], axis=1)


def check_definition(level: str, codec: str, rows: int, kept: int, more: int | None) -> None:
    ops = CpuOps(level, 2)
    width = whole_blocks(codec, 40)
    heads = heads_of(codec, 37, width)
    x = normal(21, rows, HEADS * (kept + width))
    beside = None if more is None else normal(22, rows, more)
    got = ops.head_linear(x, ops.head_weight(heads), kept=kept, beside=beside)
    want = one_by_one(ops, x, heads, kept, beside)
    with named(codec=codec, rows=rows, kept=kept, more=more):
        assert got.shape == want.shape
        assert (got == want).all(), f"{(got != want).sum()} of {got.size}"


@pytest.mark.parametrize("level", LEVELS)
def test_heads_have_the_bits_of_linear(level: str) -> None:
    for codec in CODECS:
        check_definition(level, codec, 1, 8, 24)
        check_definition(level, codec, 40, 0, None)


@pytest.mark.matrix
@pytest.mark.parametrize("level", LEVELS)
def test_no_number_of_rows_or_columns_shows(level: str) -> None:
    for codec in CODECS:
        for rows in (0, 2, 16, 17, 33, 100):
            for kept, more in ((0, 5), (3, None), (64, 576)):
                check_definition(level, codec, rows, kept, more)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_do_not_depend_on_the_batch_or_the_threads(level: str) -> None:
    for codec in ("F32", "BF16", "Q8_0", "Q4_K"):
        width = whole_blocks(codec, 64)
        heads, x = heads_of(codec, 48, width, 5), normal(23, 90, 5 * (4 + width))
        whole = [
            ops.head_linear(x, ops.head_weight(heads), kept=4)
            for ops in (CpuOps(level, threads) for threads in (1, 2, 3))
        ]
        assert (whole[0] == whole[1]).all() and (whole[0] == whole[2]).all(), codec
        ops = CpuOps(level, 2)
        weight = ops.head_weight(heads)
        for start, size in ((0, 1), (31, 1), (40, 20)):
            part = slice(start, start + size)
            alone = ops.head_linear(x[part].copy(), weight, kept=4)
            assert (alone == whole[0][part]).all(), (codec, start, size)


def test_passes_over_many_rows_do_not_show() -> None:
    """A batch whose operands do not fit in the memory of one pass."""
    ops = CpuOps("auto", 2)
    heads = heads_of("BF16", 16, 64, 8)
    weight = ops.head_weight(heads)
    few = normal(24, 50, 8 * 64)
    rows = np.tile(few, (700, 1))
    got = ops.head_linear(rows, weight)
    assert (got.reshape(-1, 50, 8 * 16) == ops.head_linear(few, weight)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_agrees_with_the_reference(level: str) -> None:
    ops, reference = CpuOps(level, 2), ReferenceOps()
    for codec in ("F32", "F16", "BF16", "Q8_0"):
        heads, x = heads_of(codec, 40, 64), normal(25, 6, HEADS * 68)
        beside = normal(26, 6, 7)
        got, want = (
            backend.head_linear(x, backend.head_weight(heads), kept=4, beside=beside)
            for backend in (ops, reference)
        )
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max(), codec
        assert (want == one_by_one(reference, x, heads, 4, beside)).all(), codec


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_does_not_fit_is_refused(backend: str) -> None:
    ops = make_ops(backend, threads=1)
    heads = heads_of("F32", 8, 32)
    weight = ops.head_weight(heads)
    x = normal(27, 2, HEADS * 32)
    with pytest.raises(ValueError, match="at least one"):
        ops.head_weight([])
    with pytest.raises(ValueError, match="must be alike"):
        ops.head_weight([*heads, matrix(1, 9, 32, "F32")])
    with pytest.raises(ValueError, match="must be alike"):
        ops.head_weight([*heads, matrix(1, 8, 32, "BF16")])
    with pytest.raises(ValueError, match="kept"):
        ops.head_linear(x, weight, kept=-1)
    with pytest.raises(ValueError, match="96"):
        ops.head_linear(x, weight, kept=1)
    with pytest.raises(ValueError, match="beside"):
        ops.head_linear(x, weight, beside=normal(1, 3, 4))
