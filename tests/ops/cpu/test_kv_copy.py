"""A copied block is the block: attention over the copy gives the same bits, in every layer."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import new_cache, run
from tests.ops.cpu.cases import KV_CODECS, Request, batch_of, normal, row_width, shape_of

BACKENDS: list[type[Ops]] = [CpuOps, ReferenceOps]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block_size", [16, 64])
def test_a_request_goes_on_from_copied_blocks_as_from_its_own(
    backend: type[Ops], block_size: int
) -> None:
    ops = backend()
    shape = shape_of(2, 2, 32)
    for k, v in KV_CODECS:
        kv = new_cache(ops, shape, 9, block_size, k, v)
        length = 2 * block_size + 5
        for layer in (0, 1):
            batch = batch_of([Request(7, 0, length, np.array([4, 0, 6], np.int32))])
            ops.kv_write(normal(layer, length, row_width(shape)), shape, kv, layer, batch)
        ops.kv_copy(kv, np.array([[6, 1], [0, 8]], np.int32))
        for layer in (0, 1):
            rows = normal(5 + layer, 1, row_width(shape))
            own, copied = (
                batch_of([Request(7, length, 1, np.array(blocks, np.int32))])
                for blocks in ([4, 0, 6], [4, 8, 1])
            )
            ops.kv_write(rows, shape, kv, layer, own)
            expected = np.array(ops.paged_attention(rows, shape, kv, layer, own))
            ops.kv_write(rows, shape, kv, layer, copied)
            found = ops.paged_attention(rows, shape, kv, layer, copied)
            assert np.array_equal(found, expected), (k, v, layer)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_written_to_a_copy_stays_out_of_its_source(backend: type[Ops]) -> None:
    ops = backend()
    shape = shape_of(1, 2, 16)
    kv = new_cache(ops, shape, 4, 16, "f32", "bf16")
    first = [Request(1, 0, 5, np.array([0], np.int32))]
    before = run(ops, shape, kv, first)
    ops.kv_copy(kv, np.array([[0, 3]], np.int32))
    run(ops, shape, kv, [Request(2, 3, 9, np.array([3], np.int32))])
    again = run(ops, shape, kv, [Request(1, 4, 1, np.array([0], np.int32))])
    assert np.array_equal(again[0], before[4])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pair", [(0, 4), (-1, 2)])
def test_a_block_that_is_not_there_is_refused(backend: type[Ops], pair: tuple[int, int]) -> None:
    ops = backend()
    kv = new_cache(ops, shape_of(1, 2, 16), 4, 16, "f32", "f32")
    outside = next(block for block in pair if not 0 <= block < 4)
    with pytest.raises(ValueError, match=rf"block {outside} is not in \[0, 4\)"):
        ops.kv_copy(kv, np.array([pair], np.int32))
