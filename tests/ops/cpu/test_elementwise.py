"""Norm, rotary embedding, gated activation, embedding, take_rows and scale_rows."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import (
    LEVELS,
    TABLES,
    UNIT,
    matrix,
    named,
    normal,
    row_width,
    shape_of,
    vector,
    whole_blocks,
)

REFERENCE = ReferenceOps()


def inverse_rms_error(width: int) -> float:
    """Relative error of 1 / sqrt(mean + eps): sums of width / 16 squares and of 16 lanes (each
    halved by the root), the mean, the root and the division."""
    return float((width / 16 + 4 + 2) / 2 + 3) * UNIT


@pytest.mark.parametrize("level", LEVELS)
def test_rms_norm(level: str) -> None:
    ops = CpuOps(level, 2)
    for width in (1, 15, 16, 17, 64, 172, 1024):
        norm = Norm(normal(1, 1, width)[0], 1e-6)
        x = normal(2, 300, width) * np.float32(3)
        got = ops.norm(x, norm)
        expected = REFERENCE.norm(x, norm)
        limit = (inverse_rms_error(width) + 3 * UNIT) * np.abs(expected)
        assert (np.abs(got - expected) <= limit).all(), width
        for row in (0, 7, 299):
            assert (ops.norm(x[row : row + 1], norm) == got[row]).all(), (width, row)
        assert (ops.norm(np.zeros((1, width), np.float32), norm) == 0).all(), width


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("with_norm", [False, True])
def test_rope(level: str, with_norm: bool) -> None:
    ops = CpuOps(level, 2)
    for head_dim, rotary_dim in ((8, 8), (64, 64), (128, 128), (80, 20), (96, 34)):
        with named(head_dim=head_dim, rotary_dim=rotary_dim):
            check_rope(ops, head_dim, rotary_dim, with_norm)


def check_rope(ops: CpuOps, head_dim: int, rotary_dim: int, with_norm: bool) -> None:
    shape = shape_of(2, 3, head_dim)
    inv_freq = 10000.0 ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    table = ops.rope_table(inv_freq, 700, attention_factor=1.25)
    expected_table = REFERENCE.rope_table(inv_freq, 700, attention_factor=1.25)
    assert (table.cos == expected_table.cos).all()
    assert (table.sin == expected_table.sin).all()
    assert table.rotary_dim == rotary_dim
    q_norm = Norm(normal(1, 1, head_dim)[0], 1e-6) if with_norm else None
    k_norm = Norm(normal(2, 1, head_dim)[0], 1e-6) if with_norm else None
    rows = normal(3, 200, row_width(shape))
    positions = np.random.default_rng(4).integers(0, 700, 200).astype(np.int32)
    got, expected = rows.copy(), rows.copy()
    ops.rope(got, shape, table, positions, q_norm=q_norm, k_norm=k_norm)
    REFERENCE.rope(expected, shape, table, positions, q_norm=q_norm, k_norm=k_norm)
    largest = np.abs(expected).max()
    assert np.abs(got - expected).max() <= (inverse_rms_error(head_dim) + 8 * UNIT) * 2 * largest
    values = (shape.num_heads + shape.num_kv_heads) * head_dim
    assert (got[:, values:] == rows[:, values:]).all()  # v is left alone
    if not with_norm:
        heads = got.reshape(200, -1, head_dim)[:, :, rotary_dim:]
        assert (heads == rows.reshape(200, -1, head_dim)[:, :, rotary_dim:]).all()
    alone = rows[13:14].copy()
    ops.rope(alone, shape, table, positions[13:14], q_norm=q_norm, k_norm=k_norm)
    assert (alone == got[13:14]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_gated_silu(level: str) -> None:
    ops = CpuOps(level, 2)
    for width in (1, 16, 86, 3072):
        x = normal(1, 70, 2 * width) * np.float32(8)
        got = ops.gated_activation(x, "silu")
        expected = REFERENCE.gated_activation(x, "silu")
        # The exponential is good to 2 units in the last place, then four roundings.
        assert (np.abs(got - expected) <= 12 * UNIT * np.abs(expected) + 1e-37).all()
        assert (ops.gated_activation(x[5:6], "silu") == got[5:6]).all()
    with pytest.raises(ValueError, match="relu6"):
        ops.gated_activation(x, "relu6")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
def test_silu_of_the_extremes(level: str) -> None:
    ops = CpuOps(level, 1)
    gates = np.array([0, -0.0, 1e4, -1e4, 88.7, -88.7, -104, 3e38, -3e38, np.inf, np.nan])
    x = np.ones((1, 2 * len(gates)), np.float32)
    x[0, : len(gates)] = gates
    got = ops.gated_activation(x, "silu")[0]
    expected = [0, 0, 1e4, 0, 88.7, 0, 0, 3e38, 0, np.inf, np.nan]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-35)


@pytest.mark.parametrize("level", LEVELS)
def test_exponential_over_its_whole_range(level: str) -> None:
    """silu(x) / x is 1 / (1 + exp(-x)): where exp(-x) is large, its relative error shows."""
    ops = CpuOps(level, 2)
    x = np.linspace(-87, -0.01, 200001).astype(np.float32)
    got = ops.gated_activation(np.concatenate([x, np.ones_like(x)])[None], "silu")[0]
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    kept = np.abs(exact) > 2.0**-126
    assert np.abs(got[kept] / exact[kept] - 1).max() < 8 * UNIT


@pytest.mark.parametrize("level", LEVELS)
def test_embedding_decodes_exactly(level: str) -> None:
    ops = CpuOps(level, 2)
    ids = np.random.default_rng(2).integers(0, 50, 333).astype(np.int32)
    order = np.random.default_rng(3).permutation(50).astype(np.int32)
    for codec in TABLES:
        for width in dict.fromkeys(whole_blocks(codec, width) for width in (64, 172, 5)):
            with named(codec=codec, width=width):
                table = matrix(1, 50, width, codec)
                weight = ops.embedding_weight(table)
                assert (weight.rows, weight.width, weight.codec) == (50, width, codec)
                assert (ops.embedding(weight, ids) == table.to_f32()[ids]).all()
                ordered = table.select_rows(order)
                got = ops.embedding(ops.embedding_weight(ordered), ids)
                assert (got == table.to_f32()[order[ids]]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_f16_decodes_every_number(level: str) -> None:
    ops = CpuOps(level, 2)
    kind = get_codec("F16")
    data = np.arange(65536, dtype=np.uint16).view(np.uint8).reshape(1024, 128)
    table = Tensor("halves", (1024, 64), kind, data)
    got = ops.embedding(ops.embedding_weight(table), np.arange(1024, dtype=np.int32))
    expected = data.view(np.float16).astype(np.float32)
    assert (np.isnan(got) == np.isnan(expected)).all()
    same = ~np.isnan(expected)
    assert (got[same] == expected[same]).all()
    assert (np.signbit(got) == np.signbit(expected)).all()


def test_take_rows_and_vectors() -> None:
    ops = CpuOps(threads=2)
    x = normal(1, 300, 70)
    rows = np.array([3, 3, 0, 299], np.int32)
    assert (ops.take_rows(x, rows) == x[rows]).all()
    assert ops.take_rows(x, rows[:0]).shape == (0, 70)
    stored = vector(1, 9)
    assert (ops.vector(stored, offset=1.0) == stored.to_f32() + np.float32(1)).all()


@pytest.mark.parametrize("level", LEVELS)
def test_scale_rows(level: str) -> None:
    ops = CpuOps(level, 2)
    for rows, width, columns in ((300, 70, 33), (1, 16, 16), (3, 5, 0), (2000, 96, 64)):
        x, factors = normal(1, rows, width), normal(2, 1, rows)[0]
        got, expected = x.copy(), x.copy()
        ops.scale_rows(got, factors, columns=columns)
        REFERENCE.scale_rows(expected, factors, columns=columns)
        assert (got == expected).all()
        assert (got[:, :columns] == x[:, :columns] * factors[:, None]).all()
        assert (got[:, columns:] == x[:, columns:]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_each_head_is_multiplied_by_the_sigmoid_of_its_gate(level: str) -> None:
    ops = CpuOps(level, 2)
    for rows, heads, width in ((300, 5, 48), (1, 1, 16), (0, 3, 8), (33, 96, 32)):
        x, gates = normal(1, rows, heads * width), normal(2, rows, heads) * np.float32(6)
        got, expected = x.copy(), x.copy()
        ops.gate_heads(got, gates)
        REFERENCE.gate_heads(expected, gates)
        np.testing.assert_allclose(got, expected, rtol=4e-7, atol=0)
        exact = x.astype(np.float64) / (1 + np.exp(-gates.astype(np.float64))).repeat(width, axis=1)
        np.testing.assert_allclose(expected, exact, rtol=1e-7, atol=0)
        # Whatever the company and the threads.
        for start in (0, rows // 2) if rows else ():
            alone = x[start : start + 1].copy()
            CpuOps(level, 1).gate_heads(alone, gates[start : start + 1].copy())
            assert (alone == got[start : start + 1]).all()
    ends = np.ones((1, 4), np.float32)
    ops.gate_heads(ends, np.array([[-1000, 1000, 0, np.nan]], np.float32))
    np.testing.assert_array_equal(ends, [[0, 1, 0.5, np.nan]])
