"""Paged attention: against the reference, and bit for bit against itself in every other batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.computations import of_pairs
from tests.ops.cpu.attention_cases import (
    Codecs,
    bound,
    expected_ragged,
    new_cache,
    packed,
    ragged,
    run,
    write,
)
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

# (kv_heads, group, head_dim, block_size)
SHAPES = (
    (2, 1, 8, 16),
    (1, 2, 64, 16),
    (2, 4, 80, 32),
    (1, 7, 128, 64),
    (1, 3, 96, 16),
    (1, 2, 18, 32),
)
PART = 1024
"""Positions of a part of a long context."""


@pytest.mark.computes("K and V", "cpu", "bound", kinds=of_pairs(KV_CODECS))
@pytest.mark.computes("K and V", "reference", "bound", kinds=of_pairs(KV_CODECS))
@pytest.mark.parametrize("level,cases", by_level(KV_CODECS, SHAPES, others=pytest.mark.matrix))
def test_agrees_with_the_reference(level: str, cases: list[Any]) -> None:
    ops = CpuOps(level, 2)
    for codecs, (kv_heads, group, head_dim, block_size) in cases:
        shape = shape_of(kv_heads, group, head_dim)
        with named(codecs=codecs, shape=shape, block_size=block_size):
            got = ragged(ops, shape, block_size, codecs)
            error = np.abs(got - expected_ragged(shape, block_size, codecs))
            rows = normal(1, 130, row_width(shape))
            assert error.max() <= bound(shape, rows, codecs, level)
            if codecs[1] == "bf16":
                # Few p lie near a tie: on average the results are as close as with f32.
                assert error.mean() < 1e-5


@pytest.mark.parametrize(
    "level,cases",
    by_level(KV_CODECS, ((1, 8), (2, 32), (4, 64), (7, 48), (3, 128)), others=pytest.mark.matrix),
)
def test_chunking_does_not_show(level: str, cases: list[Any]) -> None:
    length = 150
    for (k, v), (group, head_dim) in cases:
        shape = shape_of(2, group, head_dim)
        results = []
        for chunk, threads, block_size in (
            (150, 1, 16),
            (1, 2, 16),
            (33, 3, 32),
            (64, 2, 64),
            (37, 1, 16),
        ):
            ops = CpuOps(level, threads)
            (table,) = shuffled_blocks(chunk, [length], block_size)
            kv = new_cache(ops, shape, len(table), block_size, k, v)
            parts = [
                run(ops, shape, kv, [Request(5, start, min(chunk, length - start), table)])
                for start in range(0, length, chunk)
            ]
            results.append(np.concatenate(parts))
            with named(k=k, v=v, group=group, head_dim=head_dim, chunk=chunk, threads=threads):
                assert (results[-1] == results[0]).all()


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS))
def test_the_batch_does_not_show(level: str, cases: list[tuple[KVCodec, KVCodec]]) -> None:
    """Each request alone, and all of them in one ragged batch, in both orders."""
    shape = shape_of(2, 3, 64)
    ops = CpuOps(level, 2)
    starts, lengths = [0, 90, 64, 0, 200], [40, 91, 130, 1, 201]
    tables = shuffled_blocks(3, lengths, 16)
    requests = [Request(i, starts[i], lengths[i] - starts[i], tables[i]) for i in range(5)]

    def prepared(codecs: tuple[KVCodec, KVCodec]) -> KVCacheArrays:
        kv = new_cache(ops, shape, sum(map(len, tables)), 16, *codecs)
        run(ops, shape, kv, [Request(i, 0, s, tables[i]) for i, s in enumerate(starts) if s])
        return kv

    for codecs in cases:
        with named(codecs=codecs):
            alone = [run(ops, shape, prepared(codecs), [request]) for request in requests]
            together = run(ops, shape, prepared(codecs), requests)
            backwards = run(ops, shape, prepared(codecs), requests[::-1])
            assert (together == np.concatenate(alone)).all()
            assert (backwards == np.concatenate(alone[::-1])).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
def test_what_lies_in_other_slots_is_never_touched(level: str, garbage: float) -> None:
    """Slots past a token hold what an earlier request left, or this one's later tokens."""
    shape = shape_of(1, 2, 32)
    ops = CpuOps(level, 2)
    (table,) = shuffled_blocks(1, [128], 16)
    for k, v in KV_CODECS:
        with named(k=k, v=v):
            results = []
            for spoil in (False, True):
                kv = new_cache(ops, shape, len(table), 16, k, v)
                if spoil:
                    qkv = np.full((128, row_width(shape)), garbage, np.float32)
                    ops.kv_write(qkv, shape, kv, 1, batch_of([Request(0, 0, 128, table)]))
                results.append(
                    [
                        run(ops, shape, kv, [Request(9, start, count, table)])
                        for start, count in ((0, 37), (37, 1), (38, 50))
                    ]
                )
            for clean, spoilt in zip(*results, strict=True):
                assert np.isfinite(clean).all()
                assert (clean == spoilt).all()
            # A token that is not finite leaves the tokens before it alone, in the same batch.
            kv = new_cache(ops, shape, len(table), 16, k, v)
            rows = Request(9, 0, 37, table).rows(shape)
            rows[20:] = garbage
            batch = batch_of([Request(9, 0, 37, table)])
            ops.kv_write(rows, shape, kv, 1, batch)
            with np.errstate(invalid="ignore"):
                got = ops.paged_attention(rows, shape, kv, 1, batch)
            assert (got[:20] == results[0][0][:20]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_one_position_returns_its_value(level: str) -> None:
    shape = shape_of(2, 2, 16)
    ops = CpuOps(level, 1)
    kv = new_cache(ops, shape, 1, 16, "f32", "f32")
    request = Request(1, 0, 1, np.zeros(1, np.int32))
    got = run(ops, shape, kv, [request]).reshape(2, 2, 16)
    values = request.rows(shape).reshape(8, 16)[6:]
    assert (got == values[:, None]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_large_scores_do_not_overflow(level: str) -> None:
    shape = AttentionShape(2, 1, 16, 1.0)
    ops, reference = CpuOps(level, 1), ReferenceOps()
    (table,) = shuffled_blocks(1, [100], 16)
    batch = batch_of([Request(1, 0, 100, table)])
    qkv = Request(1, 0, 100, table).rows(shape) * np.float32(30)
    results = []
    for backend in (ops, reference):
        kv = new_cache(backend, shape, len(table), 16, "f32", "f32")
        backend.kv_write(qkv, shape, kv, 0, batch)
        results.append(backend.paged_attention(qkv, shape, kv, 0, batch))
    assert np.isfinite(results[0]).all()
    # Scores reach 1e4, so that their own rounding is 1e-3 and p moves by as much.
    assert np.abs(results[0] - results[1]).max() < 0.02 * np.abs(qkv).max()


def test_layers_and_heads_are_apart() -> None:
    shape = shape_of(3, 1, 16)
    ops = CpuOps(threads=2)
    kv = new_cache(ops, shape, 4, 16, "f32", "bf16")
    assert kv.arrays.nbytes >= kv.spec.block_bytes * 4
    table = np.array([3, 1], np.int32)
    first = run(ops, shape, kv, [Request(1, 0, 20, table)])
    other = normal(8, 20, row_width(shape))
    ops.kv_write(other, shape, kv, 0, batch_of([Request(1, 0, 20, table)]))
    ops.kv_write(other, shape, kv, 1, batch_of([Request(1, 0, 20, np.array([0, 2], np.int32))]))
    rows = Request(1, 0, 20, table).rows(shape)
    again = ops.paged_attention(rows, shape, kv, 1, batch_of([Request(1, 0, 20, table)]))
    assert (first == again).all()


def test_empty_requests_and_empty_batches() -> None:
    shape = shape_of(1, 1, 16)
    ops = CpuOps(threads=2)
    kv = new_cache(ops, shape, 2, 16, "f32", "f32")
    requests = [Request(1, 0, 0, np.zeros(1, np.int32)), Request(2, 0, 3, np.ones(1, np.int32))]
    got = run(ops, shape, kv, requests)
    assert got.shape == (3, 16)
    assert run(ops, shape, kv, requests[:1]).shape == (0, 16)


@pytest.mark.parametrize("heads", [(1, 4), (8, 1)])
@pytest.mark.parametrize("level", LEVELS)
def test_parts_of_a_long_context_are_the_same_for_any_number_of_threads(
    level: str, heads: tuple[int, int]
) -> None:
    """Whose first is decoded alone: threads without a head take parts, heads of an item are cut.

    heads: of K and V, and of q for each of them.
    """
    shape, length = shape_of(*heads, 16), 2150
    (table,) = shuffled_blocks(1, [length], 16)
    got = []
    for threads in (1, 2, 7):
        ops = CpuOps(level, threads)
        kv = new_cache(ops, shape, len(table), 16, "bf16", "bf16")
        write(ops, shape, kv, [Request(0, 0, length - 4, table)])
        alone = [run(ops, shape, kv, [Request(0, length - 4 + i, 1, table)]) for i in range(4)]
        got.append(np.concatenate(alone))
        together = run(ops, shape, kv, [Request(0, length - 4, 4, table)])
        assert np.array_equal(together, got[-1])
    assert np.array_equal(got[1], got[0])
    assert np.array_equal(got[2], got[0])
    reference = ReferenceOps()
    kv = new_cache(reference, shape, len(table), 16, "bf16", "bf16")
    write(reference, shape, kv, [Request(0, 0, length - 4, table)])
    exact = run(reference, shape, kv, [Request(0, length - 4, 4, table)])
    rows = normal(1, length, row_width(shape))
    assert np.abs(got[0] - exact).max() <= bound(shape, rows, ("bf16", "bf16"), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("codecs", [("f32", "f32"), ("bf16", "bf16")])
def test_a_sink_far_above_a_part_is_the_same_in_every_batch(level: str, codecs: Codecs) -> None:
    """The scores of the first part are 24 below those of the others, and below sinks.

    Threads and the rows beside one do not show, nor that an interval is a window or a mask's.
    """
    shape, length, last = shape_of(1, 4, 16), 2150, 40
    sinks = np.array([-2, 0, 2, 6], np.float32)
    qkv = normal(1, length, row_width(shape)).copy()
    keys = shape.num_heads * shape.head_dim
    qkv[:, 0 : keys : shape.head_dim] = 4.0
    qkv[:, keys] = 0.0
    qkv[:PART, keys] = -24.0 / (4.0 * shape.scale)
    (table,) = shuffled_blocks(1, [length], 16)

    def attend(ops: Ops, shape: AttentionShape, count: int, seen: int = 0) -> np.ndarray:
        """The last `count` rows; with `seen` a mask shows that many positions alone."""
        kv = new_cache(ops, shape, len(table), 16, *codecs)
        ops.kv_write(qkv, shape, kv, 1, batch_of([Request(0, 0, length, table)]))
        k, q = np.arange(length), np.arange(length - count, length)[:, None]
        masks = packed((k <= q) & (k > q - seen)) if seen else None
        batch, rows = batch_of([Request(0, length - count, count, table)]), qkv[-count:].copy()
        return np.asarray(ops.paged_attention(rows, shape, kv, 1, batch, sinks=sinks, masks=masks))

    # All, a part of the first part and what lies behind it, and what lies behind it alone.
    for window in (0, 1600, 1100):
        of = replace(shape, window=window)
        whole = attend(CpuOps(level, 1), of, last)
        assert np.abs(whole - attend(ReferenceOps(), of, last)).max() <= bound(
            shape, qkv, codecs, level
        )
        for threads in (1, 2):
            ops = CpuOps(level, threads)
            for count in (1, last):
                with named(window=window, threads=threads, count=count):
                    assert np.array_equal(attend(ops, of, count), whole[-count:])
                    if window:
                        assert np.array_equal(attend(ops, shape, count, window), whole[-count:])
