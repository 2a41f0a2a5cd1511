"""Values of a width of their own and latent values: the reference, and == however work is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import bound, expected_ragged, new_cache, ragged, run
from tests.ops.cpu.cases import (
    KV_CODECS,
    LEVELS,
    Request,
    batch_of,
    by_level,
    named,
    normal,
    row_width,
    shape_of,
    shuffled_blocks,
)


def latent(kv_heads: int, group: int, head_dim: int, value_dim: int) -> AttentionShape:
    return replace(shape_of(kv_heads, group, head_dim), value_dim=value_dim, latent=True)


def apart(kv_heads: int, group: int, head_dim: int, value_dim: int) -> AttentionShape:
    return replace(shape_of(kv_heads, group, head_dim), value_dim=value_dim)


# Shapes and block sizes. Latent values begin at odd dimensions and end within a panel, too.
SHAPES = (
    (latent(1, 4, 24, 16), 16),
    (latent(1, 16, 576, 512), 64),
    (latent(2, 3, 40, 21), 32),
    (replace(latent(1, 5, 96, 64), window=70), 16),
    (replace(latent(1, 40, 32, 0), softcap=4.0), 16),
    (replace(latent(1, 2, 50, 34), chunk=48), 32),
    (apart(2, 2, 192, 128), 16),
    (apart(1, 3, 16, 40), 32),
    (replace(apart(2, 1, 24, 7), window=33), 64),
)


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS, SHAPES, others=pytest.mark.matrix))
def test_agrees_with_the_reference(level: str, cases: list[Any]) -> None:
    ops = CpuOps(level, 2)
    for codecs, (shape, block_size) in cases:
        with named(codecs=codecs, shape=shape, block_size=block_size):
            got = ragged(ops, shape, block_size, codecs)
            expected = expected_ragged(shape, block_size, codecs)
            assert got.shape == expected.shape == (len(got), shape.output_width)
            v = codecs[0] if shape.latent else codecs[1]
            limit = bound(shape, normal(1, 130, row_width(shape)), codecs, level)
            if shape.softcap:
                limit += 1e-5
            error = np.abs(got - expected)
            assert error.max() <= limit
            if v == "bf16":  # Few p lie near a tie.
                assert error.mean() <= 3e-4


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS, SHAPES, others=pytest.mark.matrix))
def test_chunks_threads_and_company_do_not_show(level: str, cases: list[Any]) -> None:
    one, many = CpuOps(level, 1), CpuOps(level, 5)
    for codecs, (shape, block_size) in cases:
        with named(codecs=codecs, shape=shape, block_size=block_size):
            mine, other = shuffled_blocks(4, [140, 90], block_size)
            blocks = len(mine) + len(other)
            kv = new_cache(one, shape, blocks, block_size, *codecs)
            whole = run(one, shape, kv, [Request(3, 0, 140, mine)])
            for ops, cuts in ((many, (0, 5, 69, 137, 138, 139, 140)), (one, (0, 37, 140))):
                kv = new_cache(ops, shape, blocks, block_size, *codecs)
                parts = []
                for start, end in pairwise(cuts):
                    count = end - start
                    company = Request(8, 0, 1 + start % 90, other)
                    both = [company, Request(3, start, count, mine)]
                    parts.append(run(ops, shape, kv, both)[company.count :])
                assert (np.concatenate(parts) == whole).all()


@pytest.mark.parametrize("level", LEVELS)
def test_sinks_slopes_and_masks_meet_latent_values(level: str) -> None:
    shape, block_size = latent(1, 6, 40, 32), 16
    (table,) = shuffled_blocks(2, [150], block_size)
    masks = np.random.default_rng(3).integers(0, 2**64, (150, 3), np.uint64)
    positions = np.arange(150)
    masks[positions, positions // 64] |= np.uint64(1) << (positions % 64).astype(np.uint64)
    sinks, slopes = normal(5, 1, 6)[0], np.abs(normal(6, 1, 6)[0]) * np.float32(0.1)
    found = []
    for ops in (CpuOps(level, 3), ReferenceOps()):
        kv = new_cache(ops, shape, len(table), block_size, "f32", "f32")
        request = Request(1, 0, 150, table)
        rows, batch = request.rows(shape), batch_of([request])
        ops.kv_write(rows, shape, kv, 1, batch)
        found.append(
            ops.paged_attention(rows, shape, kv, 1, batch, sinks=sinks, slopes=slopes, masks=masks)
        )
    np.testing.assert_allclose(found[0], found[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_what_lies_past_the_last_token_is_not_part_of_latent_values(
    level: str, garbage: float
) -> None:
    ops, shape = CpuOps(level, 2), latent(1, 4, 24, 16)
    clean = new_cache(ops, shape, 2, 32, "bf16", "bf16")
    table = np.array([1, 0], np.int32)
    expected = run(ops, shape, clean, [Request(1, 0, 37, table)])
    dirty = new_cache(ops, shape, 2, 32, "bf16", "bf16")
    request = Request(1, 0, 64, table)
    ops.kv_write(np.full_like(request.rows(shape), garbage), shape, dirty, 1, batch_of([request]))
    assert (run(ops, shape, dirty, [Request(1, 0, 37, table)]) == expected).all()


def test_heads_of_another_kind_are_refused() -> None:
    ops, shape = CpuOps(LEVELS[0], 1), latent(1, 4, 24, 16)
    kv = new_cache(ops, shape, 1, 16, "f32", "f32")
    other = apart(1, 4, 24, 16)
    request = Request(1, 0, 3, np.array([0], np.int32))
    with pytest.raises(ValueError, match=r"1 heads of 24 whose last 16 are .* with values of 16"):
        ops.kv_write(request.rows(other), other, kv, 0, batch_of([request]))
    with pytest.raises(ValueError, match="qkv"):
        ops.kv_write(request.rows(other), shape, kv, 0, batch_of([request]))
