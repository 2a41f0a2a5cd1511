"""Norms of every kind, residuals and scales: against the reference and with == themselves."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.cases import (
    CODECS,
    F32,
    LEVELS,
    TABLES,
    UNIT,
    by_level,
    matrix,
    named,
    normal,
    row_width,
    shape_of,
    vector,
    whole_blocks,
)

REFERENCE = ReferenceOps()

KINDS: tuple[tuple[Literal["rms", "layer"], bool], ...] = (
    ("rms", False),
    ("rms", True),
    ("layer", False),
    ("layer", True),
)


def norm_of(kind: Literal["rms", "layer"], with_bias: bool, width: int) -> Norm:
    bias = normal(12, 1, width)[0] if with_bias else None
    return Norm(normal(11, 1, width)[0], 1e-5, kind, bias)


def bound(x: F32, norm: Norm) -> F32:
    """What rounding alone may change.

    The mean carries a rounding per value of its lane, 4 of the lanes and one of the quotient, of
    the mean magnitude; the squares as many of their own, halved by the root. Differences, root,
    quotient, two products and the bias add one each, and the reference rounds its result.
    """
    width = x.shape[1]
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True) if norm.kind == "layer" else wide
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + norm.eps)
    sums = width / 16 + 5
    mean = sums * np.abs(wide).mean(axis=1, keepdims=True) if norm.kind == "layer" else 0
    normed = np.abs(centred) * scale * np.abs(norm.weight)
    error = mean * scale * np.abs(norm.weight) + (sums / 2 + 7) * normed
    if norm.bias is not None:
        error = error + 2 * (normed + np.abs(norm.bias))
    return UNIT * np.asarray(error)


@cache
def expected_norm(kind: Literal["rms", "layer"], with_bias: bool, width: int) -> tuple[F32, F32]:
    """The reference's result and what rounding may change of it, once for all levels."""
    norm, x = norm_of(kind, with_bias, width), normal(1, 200, width) * np.float32(3)
    return REFERENCE.norm(x, norm), bound(x, norm) + 1e-30


@pytest.mark.parametrize(
    "level,cases", by_level(KINDS, (1, 2, 15, 16, 17, 100, 768), others=pytest.mark.matrix)
)
def test_norm(level: str, cases: list[Any]) -> None:
    ops = CpuOps(level, 2)
    for (kind, with_bias), width in cases:
        with named(kind=kind, with_bias=with_bias, width=width):
            norm = norm_of(kind, with_bias, width)
            x, residual = normal(1, 200, width) * np.float32(3), normal(2, 200, width)
            got = ops.norm(x, norm)
            expected, limit = expected_norm(kind, with_bias, width)
            error = np.abs(got - expected)
            assert (error <= limit).all(), f"worst {(error / limit).max():.2f} of the bound"
            assert (ops.norm(x, norm, residual=residual) == residual + got).all()
            for threads in (1, 3):
                other = CpuOps(level, threads)
                for row in (0, 7, 199):
                    part = slice(row, row + 1)
                    assert (other.norm(x[part], norm) == got[part]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_large_mean_does_not_eat_the_variance(level: str) -> None:
    """mean(x²) - mean(x)² would be 0 or worse here; two passes keep all but the rounding of x."""
    ops = CpuOps(level, 1)
    x = np.float32(4096) + normal(1, 3, 512)
    norm = Norm(np.ones(512, np.float32), 0.0, "layer")
    assert np.abs(ops.norm(x, norm) - REFERENCE.norm(x, norm)).max() < 0.01
    assert np.abs(ops.norm(x, norm).std(axis=1) - 1).max() < 1e-3


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_are_all_alike(level: str) -> None:
    ops = CpuOps(level, 1)
    for width in (1, 16, 33):
        x = np.full((2, width), 3, np.float32)
        norm = norm_of("layer", True, width)
        assert (ops.norm(x, norm) == norm.bias).all()


@pytest.mark.parametrize("level,cases", by_level(KINDS, CODECS, others=pytest.mark.matrix))
def test_fused_norm_is_the_norm_and_then_the_product(level: str, cases: list[Any]) -> None:
    ops = CpuOps(level, 2)
    for (kind, with_bias), codec in cases:
        for width in dict.fromkeys(whole_blocks(codec, width) for width in (64, 172, 9)):
            weight = ops.linear_weight([matrix(1, 50, width, codec)])
            norm = norm_of(kind, with_bias, width)
            for rows in (1, 40):
                x = normal(3, rows, width)
                apart = ops.linear(ops.norm(x, norm), weight)
                with named(kind=kind, with_bias=with_bias, codec=codec, width=width, rows=rows):
                    assert (ops.linear(x, weight, norm=norm) == apart).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind,with_bias", KINDS)
def test_norm_columns(level: str, kind: Literal["rms", "layer"], with_bias: bool) -> None:
    """Each group is the norm of its columns; all else stays as it is."""
    ops, width, start = CpuOps(level, 2), 40, 7
    norm = norm_of(kind, with_bias, width)
    x = normal(1, 90, 60)
    for groups in (1, 2, 5):
        got, expected = x.copy(), x.copy()
        ops.norm_columns(got, start, norm, groups=groups)
        REFERENCE.norm_columns(expected, start, norm, groups=groups)
        with named(groups=groups):
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
            assert (got[:, :start] == x[:, :start]).all()
            assert (got[:, start + width :] == x[:, start + width :]).all()
            step = width // groups
            for group in range(groups):
                part = slice(group * step, (group + 1) * step)
                bias = None if norm.bias is None else norm.bias[part]
                of_group = replace(norm, weight=norm.weight[part], bias=bias)
                inside = slice(start + part.start, start + part.stop)
                columns = np.ascontiguousarray(x[:, inside])
                assert (got[:, inside] == ops.norm(columns, of_group)).all(), group


@pytest.mark.parametrize("level", LEVELS)
def test_linear_scales_after_the_bias_and_before_the_residual(level: str) -> None:
    ops, scale = CpuOps(level, 2), 0.2203125
    for codec in CODECS:
        width = whole_blocks(codec, 64)
        weight = ops.linear_weight([matrix(1, 50, width, codec)], bias=[vector(2, 50)])
        for rows in (1, 9, 40):
            x, residual = normal(3, rows, width), normal(4, rows, 50)
            plain = ops.linear(x, weight)
            scaled = plain * np.float32(scale)
            both = ops.linear(x, weight, scale=scale, residual=residual)
            unscaled = ops.linear(x, weight, scale=1.0, residual=residual)
            with named(codec=codec, rows=rows):
                assert (ops.linear(x, weight, scale=scale) == scaled).all()
                assert (both == scaled + residual).all()
                assert (unscaled == plain + residual).all()


@pytest.mark.parametrize("level", LEVELS)
def test_embedding_scale_and_residual(level: str) -> None:
    """One rounding each, so that it equals NumPy's float32 bit for bit."""
    ops = CpuOps(level, 2)
    ids = np.random.default_rng(2).integers(0, 50, 333).astype(np.int32)
    for codec in TABLES:
        width = whole_blocks(codec, 96)
        table, residual = matrix(1, 50, width, codec), normal(3, 333, width)
        weight, rows = ops.embedding_weight(table), table.to_f32()[ids]
        scaled = rows * np.float32(96**0.5)
        assert (ops.embedding(weight, ids, scale=96**0.5) == scaled).all(), codec
        assert (ops.embedding(weight, ids, residual=residual) == rows + residual).all(), codec
        got = ops.embedding(weight, ids, scale=96**0.5, residual=residual)
        assert (got == scaled + residual).all(), codec
        expected = REFERENCE.embedding(
            REFERENCE.embedding_weight(table), ids, scale=96**0.5, residual=residual
        )
        assert (got == expected).all(), codec


def test_what_does_not_fit_is_refused() -> None:
    ops, x = CpuOps(threads=1), normal(1, 3, 64)
    good = norm_of("layer", True, 64)
    short = normal(2, 1, 63)[0]
    for bad in (replace(good, weight=short), replace(good, bias=short)):
        with pytest.raises(ValueError, match=r"norm (weight|bias)"):
            ops.norm(x, bad)
        with pytest.raises(ValueError, match=r"norm (weight|bias)"):
            ops.linear(x, ops.linear_weight([matrix(1, 4, 64)]), norm=bad)
    with pytest.raises(ValueError, match="residual"):
        ops.norm(x, good, residual=normal(1, 2, 64))
    for start, groups in ((-1, 1), (1, 1), (0, 3), (0, 0), (0, -1)):
        for backend in (ops, REFERENCE):
            with pytest.raises(ValueError, match="columns"):
                backend.norm_columns(x.copy(), start, good, groups=groups)
    table = ops.embedding_weight(matrix(1, 9, 64))
    with pytest.raises(ValueError, match="residual"):
        ops.embedding(table, np.zeros(2, np.int32), residual=normal(1, 3, 64))
    for backend in (ops, REFERENCE):
        with pytest.raises(ValueError, match="norm kind 'batch'"):
            backend.norm(x, replace(good, kind="batch"))  # type: ignore[arg-type]


def test_rope_takes_rms_norms_only() -> None:
    shape = shape_of(1, 1, 16)
    rows, positions = normal(1, 2, row_width(shape)), np.zeros(2, np.int32)
    for backend in (CpuOps(threads=1), REFERENCE):
        table = backend.rope_table(np.ones(8), 10)
        for bad in (norm_of("layer", False, 16), norm_of("rms", True, 16)):
            with pytest.raises(ValueError, match="q_norm of rope must be an rms norm"):
                backend.rope(rows, shape, table, positions, q_norm=bad)
            with pytest.raises(ValueError, match="k_norm of rope must be an rms norm"):
                backend.rope(rows, shape, table, positions, k_norm=bad)
