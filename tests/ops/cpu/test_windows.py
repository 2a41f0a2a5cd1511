"""Attention with windows, softcaps and wide heads: the reference, and == however it is cut."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import bound, new_cache, run, write
from tests.ops.cpu.cases import (
    KV_CODECS,
    LEVELS,
    UNIT,
    Request,
    batch_of,
    by_level,
    named,
    normal,
    row_width,
    shape_of,
    shuffled_blocks,
)

I32 = npt.NDArray[np.int32]


def windowed(shape: AttentionShape, window: int, softcap: float = 0.0) -> AttentionShape:
    return replace(shape, window=window, softcap=softcap)


def forget(table: I32, first_new: int, window: int, block_size: int) -> I32:
    """The block table with 0 for the blocks that lie before every window from `first_new` on."""
    kept = table.copy()
    kept[: max(0, first_new + 1 - window) // block_size] = 0
    return kept


# (kv_heads, group, head_dim, block_size, window, softcap)
SHAPES = (
    (2, 1, 8, 16, 1, 0.0),
    (1, 2, 64, 16, 33, 0.0),
    (2, 4, 80, 32, 64, 20.0),
    (1, 3, 96, 64, 65, 0.0),
    (1, 2, 18, 32, 100, 0.7),
    (1, 7, 32, 16, 0, 3.0),
)
WIDE_HEADS = (
    (2, 2, 256, 16, 47, 50.0),
    (1, 1, 512, 32, 70, 0.0),
    (1, 5, 320, 16, 0, 0.0),
)


def ragged(
    ops: Ops, shape: AttentionShape, block_size: int, codecs: tuple[KVCodec, KVCodec]
) -> np.ndarray:
    """Prefills, chunks and decodes in one ragged batch, blocks behind the windows forgotten."""
    starts, lengths = [0, 150, 99, 63], [70, 151, 130, 64]
    tables = shuffled_blocks(1, lengths, block_size)
    before = [Request(i, 0, s, tables[i]) for i, s in enumerate(starts) if s]
    kept = [
        forget(table, start, shape.window, block_size) if shape.window else table
        for table, start in zip(tables, starts, strict=True)
    ]
    now = [Request(i, starts[i], lengths[i] - starts[i], kept[i]) for i in range(4)]
    kv = new_cache(ops, shape, sum(map(len, tables)), block_size, *codecs)
    write(ops, shape, kv, before)
    return run(ops, shape, kv, now)


@cache
def expected_ragged(
    shape: AttentionShape, block_size: int, codecs: tuple[KVCodec, KVCodec]
) -> np.ndarray:
    """The reference's, once for all levels."""
    return ragged(ReferenceOps(), shape, block_size, codecs)


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS, SHAPES, others=pytest.mark.matrix))
def test_agrees_with_the_reference(level: str, cases: list[Any]) -> None:
    check_against_the_reference(level, cases)


@pytest.mark.parametrize(
    "level,cases", by_level(KV_CODECS[::2], WIDE_HEADS, others=pytest.mark.matrix)
)
def test_wide_heads_agree_with_the_reference(level: str, cases: list[Any]) -> None:
    check_against_the_reference(level, cases)


def check_against_the_reference(level: str, cases: list[Any]) -> None:
    ops = CpuOps(level, 2)
    for codecs, (kv_heads, group, head_dim, block_size, window, softcap) in cases:
        shape = windowed(shape_of(kv_heads, group, head_dim), window, softcap)
        with named(codecs=codecs, shape=shape, block_size=block_size):
            got = ragged(ops, shape, block_size, codecs)
            longest = normal(1, 151, row_width(shape))
            # A capped score, `softcap` at most, carries 9 roundings of its own, which shift its p
            # and sum.
            capped = np.abs(longest).max() * 2 * 9 * UNIT * softcap
            limit = bound(shape, longest, codecs, level) + capped
            assert np.abs(got - expected_ragged(shape, block_size, codecs)).max() <= limit


@pytest.mark.parametrize(
    "level,cases",
    by_level(KV_CODECS, ((1, 0.0), (50, 0.0), (64, 5.0), (129, 0.0)), others=pytest.mark.matrix),
)
def test_chunks_blocks_threads_and_company_do_not_show(level: str, cases: list[Any]) -> None:
    length = 140
    for (k, v), (window, softcap) in cases:
        shape = windowed(shape_of(2, 3, 48), window, softcap)
        results = []
        for chunk, threads, block_size in (
            (140, 1, 16), (1, 2, 16), (33, 3, 32), (64, 2, 64), (37, 1, 16),
        ):  # fmt: skip
            ops = CpuOps(level, threads)
            mine, other = shuffled_blocks(chunk, [length, 90], block_size)
            kv = new_cache(ops, shape, len(mine) + len(other), block_size, k, v)
            run(ops, shape, kv, [Request(8, 0, 89, other)])
            parts = []
            for start in range(0, length, chunk):
                part = Request(
                    5, start, min(chunk, length - start), forget(mine, start, window, block_size)
                )
                parts.append(run(ops, shape, kv, [Request(8, 89, 1, other), part])[1:])
            results.append(np.concatenate(parts))
            with named(k=k, v=v, window=window, softcap=softcap, chunk=chunk, threads=threads):
                assert (results[-1] == results[0]).all()


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS))
def test_a_window_that_reaches_the_start_is_none(
    level: str, cases: list[tuple[KVCodec, KVCodec]]
) -> None:
    ops, plain, length = CpuOps(level, 2), shape_of(1, 2, 64), 140
    (table,) = shuffled_blocks(1, [length], 16)
    for codecs in cases:
        with named(codecs=codecs):
            results = []
            for window in (0, length, 100_000, 2**31):
                shape, kv = windowed(plain, window), new_cache(ops, plain, len(table), 16, *codecs)
                results.append(run(ops, shape, kv, [Request(3, 0, length, table)]))
            for other in results[1:]:
                assert (other == results[0]).all()
            short = windowed(plain, length - 1)
            kv = new_cache(ops, short, len(table), 16, *codecs)
            cut = run(ops, short, kv, [Request(3, 0, length, table)])
            assert (cut[:-1] == results[0][:-1]).all()
            assert (cut[-1] != results[0][-1]).any()


def spoilt(
    ops: Ops, shape: AttentionShape, request: Request, codecs: tuple[KVCodec, KVCodec],
    garbage: float, blocks: int, block_size: int,
) -> KVCacheArrays:  # fmt: skip
    """A cache with the request's positions written, and `garbage` where no new token looks."""
    kv = new_cache(ops, shape, blocks, block_size, *codecs)
    end = request.start + request.count
    covered = len(request.blocks) * block_size
    everything = batch_of([Request(0, 0, covered, request.blocks)])
    rows = np.full((covered, row_width(shape)), garbage, np.float32)
    first = max(0, request.start + 1 - shape.window) if shape.window else 0
    rows[first:end] = normal(request.seed, end, row_width(shape))[first:]
    ops.kv_write(rows, shape, kv, 1, everything)
    return kv


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, 300),
    count=st.integers(1, 70),
    window=st.integers(1, 320),
    group=st.sampled_from([1, 2, 5]),
    block_size=st.sampled_from([16, 32, 64]),
    codecs=st.sampled_from(KV_CODECS),
    softcap=st.sampled_from([0.0, 4.0]),
    garbage=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_what_lies_outside_the_window_is_never_touched(
    level: str, start: int, count: int, window: int, group: int, block_size: int,
    codecs: tuple[KVCodec, KVCodec], softcap: float, garbage: float,
) -> None:  # fmt: skip
    """Slots before the first window and past the last position hold anything, tables 0."""
    shape = windowed(shape_of(1, group, 16), window, softcap)
    ops = CpuOps(level, 2)
    (ids,) = shuffled_blocks(start, [start + count + block_size], block_size)
    table = (ids + 1).astype(np.int32)  # block 0 is what forgotten entries point at
    results = []
    for value in (0.0, garbage):
        request = Request(9, start, count, table)
        kv = spoilt(ops, shape, request, codecs, value, len(table) + 1, block_size)
        ops.kv_write(
            np.full((block_size, row_width(shape)), value, np.float32), shape, kv, 1,
            batch_of([Request(0, 0, block_size, np.zeros(1, np.int32))]),
        )  # fmt: skip
        if value != 0.0:
            request = replace(request, blocks=forget(table, start, window, block_size))
        rows = request.rows(shape)
        results.append(ops.paged_attention(rows, shape, kv, 1, batch_of([request])))
    assert np.isfinite(results[0]).all()
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS))
def test_each_token_stops_at_its_own_window(
    level: str, cases: list[tuple[KVCodec, KVCodec]]
) -> None:
    """A position that is not finite is seen by the tokens within the window after it, only."""
    shape, ops, length, bad = windowed(shape_of(1, 2, 32), 37), CpuOps(level, 2), 130, 41
    (table,) = shuffled_blocks(1, [length], 16)
    request = Request(4, 0, length, table)
    for codecs in cases:
        with named(codecs=codecs):
            clean = run(ops, shape, new_cache(ops, shape, len(table), 16, *codecs), [request])
            rows, batch = request.rows(shape), batch_of([request])
            stored = rows.copy()
            stored[bad, 2 * 32 :] = np.nan
            kv = new_cache(ops, shape, len(table), 16, *codecs)
            ops.kv_write(stored, shape, kv, 1, batch)
            got = ops.paged_attention(rows, shape, kv, 1, batch)
            assert (got[:bad] == clean[:bad]).all()
            assert np.isnan(got[bad : bad + 37]).all()
            assert (got[bad + 37 :] == clean[bad + 37 :]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_positions_may_leave_gaps(level: str) -> None:
    """Tokens far apart, their windows not touching: each as if it were alone."""
    shape, ops, length = windowed(shape_of(1, 2, 16), 20), CpuOps(level, 1), 400
    (table,) = shuffled_blocks(1, [length], 16)
    kv = new_cache(ops, shape, len(table), 16, "f32", "f32")
    whole = run(ops, shape, kv, [Request(4, 0, length, table)])
    rows = Request(4, 0, length, table).rows(shape)
    at = np.array([3, 70, 71, 330, 399], np.int32)
    batch = replace(batch_of([Request(4, 0, 5, table)]), positions=at)
    assert (ops.paged_attention(rows[at], shape, kv, 1, batch) == whole[at]).all()


def test_what_means_nothing_is_refused() -> None:
    shape = shape_of(1, 1, 16)
    request = Request(1, 0, 40, np.array([1, 2, 3], np.int32))
    batch, rows = batch_of([request]), request.rows(shape)
    for backend in (CpuOps(threads=1), ReferenceOps()):
        kv = new_cache(backend, shape, 4, 16, "f32", "f32")
        for bad in (replace(shape, window=-1), replace(shape, softcap=-1.0),
                    replace(shape, softcap=np.inf), replace(shape, softcap=np.nan)):  # fmt: skip
            with pytest.raises(ValueError, match=r"window -1|softcap"):
                backend.paged_attention(rows, bad, kv, 0, batch)
        late = batch_of([Request(1, 39, 1, request.blocks)])
        narrow = replace(shape, window=8)
        for table, good in (([99, 99, 3], True), ([99, 2, 99], False), ([1, 99, 3], True)):
            changed = replace(late, block_tables=(np.array([table], np.int32),))
            if good:
                backend.kv_write(rows[:1], narrow, kv, 0, changed)
                assert backend.paged_attention(rows[:1], narrow, kv, 0, changed).shape == (1, 16)
                with pytest.raises(ValueError, match="block id 99"):
                    backend.paged_attention(rows[:1], shape, kv, 0, changed)
            else:
                with pytest.raises(ValueError, match="block id 99"):
                    backend.paged_attention(rows[:1], narrow, kv, 0, changed)
