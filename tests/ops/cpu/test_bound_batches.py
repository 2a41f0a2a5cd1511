"""Batches bound for a step: what layers get is what was checked, and every check is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, LayerPlace, RaggedBatch
from tests.ops.cpu.cases import normal, row_width, shape_of

OPS = CpuOps("auto", 2)
SHAPE = shape_of(2, 2, 16)
WINDOWED = replace(SHAPE, window=4)
PLACES = (LayerPlace(0, 0, 2, 16), LayerPlace(1, 0, 2, 16))
ROWS = normal(1, 5, row_width(SHAPE))


def new_cache() -> KVCacheArrays:
    return OPS.kv_cache(KVCacheSpec(PLACES, 16, 6, "f32", "bf16"))


def new_batch() -> RaggedBatch:
    return RaggedBatch(
        token_ids=np.zeros(5, np.int32),
        positions=np.array([0, 1, 2, 30, 31], np.int32),
        query_start=np.array([0, 3, 5], np.int32),
        block_tables=(
            np.array([[0, 0], [1, 2]], np.int32),
            np.array([[3, 0], [4, 5]], np.int32),
        ),
        logit_rows=np.array([2, 4], np.int32),
    )


def attended(kv: KVCacheArrays, batch: RaggedBatch) -> list[np.ndarray]:
    found = []
    for layer in (0, 1):
        OPS.kv_write(ROWS, SHAPE, kv, layer, batch)
        found.append(OPS.paged_attention(ROWS, SHAPE, kv, layer, batch))
    return found


def test_a_bound_batch_gives_the_bits_of_the_batch_whatever_becomes_of_its_arrays() -> None:
    expected = attended(new_cache(), new_batch())
    kv, batch = new_cache(), new_batch()
    bound = OPS.bind(batch, kv)
    assert (bound.num_tokens, bound.num_requests) == (5, 2)
    for array in (batch.positions, batch.query_start, *batch.block_tables):
        array[:] = 2**31 - 1
    for got, wanted in zip(attended(kv, bound), expected, strict=True):
        assert np.array_equal(got, wanted)


def test_a_batch_bound_for_one_cache_is_checked_against_another() -> None:
    bound = OPS.bind(new_batch(), new_cache())
    small = OPS.kv_cache(KVCacheSpec(PLACES, 16, 2, "f32", "bf16"))
    with pytest.raises(ValueError, match=r"block id 2 of request 1 is not in \[0, 2\)"):
        OPS.kv_write(ROWS, SHAPE, small, 0, bound)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": np.array([0, 1, 2, 31, 31], np.int32)}, "request 1 do not ascend"),
        ({"positions": np.array([0, 1, 2, 30], np.int32)}, "from 0 to 4"),
        ({"positions": np.zeros((5, 1), np.int32)}, "positions"),
        ({"positions": np.arange(5, dtype=np.int64)}, "positions"),
        ({"query_start": np.array([0, 6, 5], np.int32)}, "falls at request 1"),
        ({"query_start": np.array([1, 3, 5], np.int32)}, "from 0 to 5"),
        ({"query_start": np.array([], np.int32)}, "query_start is empty"),
        ({"block_tables": (np.zeros((1, 2), np.int32),)}, "block_tables"),
        ({"block_tables": (np.zeros((2, 2), np.int64),)}, "block_tables"),
    ],
)
def test_arrays_that_do_not_agree_are_not_bound(
    change: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        OPS.bind(replace(new_batch(), **change), new_cache())


@pytest.mark.parametrize("bad", [-1, 6])
def test_block_tables_are_checked_as_far_back_as_each_layer_sees(bad: int) -> None:
    kv, batch = new_cache(), new_batch()
    batch.block_tables[0][1, 0] = bad
    bound = OPS.bind(batch, kv)
    OPS.kv_write(ROWS, WINDOWED, kv, 0, bound)  # it sees the second block of that request alone
    OPS.paged_attention(ROWS, WINDOWED, kv, 0, bound)
    OPS.kv_write(ROWS, SHAPE, kv, 1, bound)  # its table is another
    for operation in (OPS.kv_write, OPS.paged_attention):
        with pytest.raises(ValueError, match=f"block id {bad} of request 1"):
            operation(ROWS, SHAPE, kv, 0, bound)
    OPS.kv_write(ROWS, WINDOWED, kv, 0, bound)


@pytest.mark.parametrize(
    ("shape", "rows", "layer", "message"),
    [
        (SHAPE, ROWS[:4], 0, "qkv"),
        (SHAPE, ROWS[:, 1:].copy(), 0, "qkv"),
        (SHAPE, ROWS, 2, r"layer 2 is not in \[0, 2\)"),
        (shape_of(1, 4, 16), normal(1, 5, 96), 0, "the cache holds"),
        (replace(SHAPE, window=-1), ROWS, 0, "window -1 is negative"),
        (replace(SHAPE, chunk=-1), ROWS, 0, "chunk -1 is negative"),
        (replace(SHAPE, num_heads=3), normal(1, 5, 7 * 16), 0, "not a multiple"),
    ],
)
def test_each_call_is_still_checked(
    shape: AttentionShape, rows: np.ndarray, layer: int, message: str
) -> None:
    kv = new_cache()
    bound = OPS.bind(new_batch(), kv)
    for operation in (OPS.kv_write, OPS.paged_attention):
        with pytest.raises(ValueError, match=message):
            operation(rows, shape, kv, layer, bound)


def test_positions_past_a_table_and_tables_that_are_missing_are_refused() -> None:
    kv, batch = new_cache(), new_batch()
    positions = np.array([0, 1, 2, 31, 32], np.int32)
    bound = OPS.bind(replace(batch, positions=positions), kv)
    with pytest.raises(ValueError, match=r"positions of request 1 are not in \[0, 32\)"):
        OPS.kv_write(ROWS, SHAPE, kv, 0, bound)
    bound = OPS.bind(replace(batch, block_tables=batch.block_tables[:1]), kv)
    OPS.kv_write(ROWS, SHAPE, kv, 0, bound)
    with pytest.raises(ValueError, match="the batch has 1 block tables"):
        OPS.kv_write(ROWS, SHAPE, kv, 1, bound)
