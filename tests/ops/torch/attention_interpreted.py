"""The attention kernel on small shapes: against the reference, and against itself in any company.

Run as products_interpreted.py is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.ops.kv import AttentionShape, KVCodec
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import expected_ragged, new_cache, ragged, run
from tests.ops.cpu.cases import (
    Request,
    batch_of,
    named,
    normal,
    shape_of,
    shuffled_blocks,
)
from tests.ops.torch.bounds import of_attention
from tests.ops.torch.on_host import DEVICE, kernel_ops, torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
SHAPES = (
    shape_of(2, 1, 8),
    replace(shape_of(1, 7, 32), softcap=5.0),
    replace(shape_of(2, 3, 18), window=40),
    replace(shape_of(1, 2, 18), chunk=48),
    AttentionShape(4, 2, 32, 0.2, value_dim=20),
)
CODECS: tuple[tuple[KVCodec, KVCodec], ...] = (("f32", "f32"), ("bf16", "bf16"), ("q8_0", "int8"))


def test_attention_agrees_with_the_reference() -> None:
    ops = kernel_ops()
    for index, shape in enumerate(SHAPES):
        block_size = (16, 32, 64)[index % 3]
        for codecs in CODECS:
            got = ragged(ops, shape, block_size, codecs)  # type: ignore[arg-type]
            error = np.abs(got - expected_ragged(shape, block_size, codecs))
            with named(shape=shape, codecs=codecs):
                assert error.max() <= of_attention(shape, normal(1, 130, shape.row_width), codecs)


def test_attention_of_a_token_is_the_same_in_any_company() -> None:
    ops, length = kernel_ops(), 100
    sinks = normal(3, 1, 6)[0]
    for shape in (SHAPES[2], shape_of(3, 2, 16)):
        results = []
        # The interpreter's product is NumPy's, which adds up otherwise in other rows of a tile:
        # chunks begin where tiles of 16 tokens do.
        chunks = (
            ((100, 16), (16, 64), (48, 32)) if DEVICE == "cpu" else ((100, 16), (1, 64), (33, 32))
        )
        for chunk, block_size in chunks:
            (table,) = shuffled_blocks(chunk, [length], block_size)
            kv = new_cache(ops, shape, len(table), block_size, "bf16", "q8_0")  # type: ignore[arg-type]
            parts = [
                run(ops, shape, kv, [Request(5, at, min(chunk, length - at), table)])  # type: ignore[arg-type]
                for at in range(0, length, chunk)
            ]
            results.append(np.concatenate(parts))
            assert (results[-1] == results[0]).all(), chunk
        request = Request(5, 0, length, np.arange(7, dtype=np.int32))
        both = []
        for each in (ops, torch_ops()):
            kv = new_cache(each, shape, 7, 16, "f32", "f32")  # type: ignore[arg-type]
            rows, batch = request.rows(shape), batch_of([request])
            each.kv_write(rows, shape, kv, 1, batch)
            both.append(each.paged_attention(rows, shape, kv, 1, batch, sinks=sinks))
        limit = of_attention(shape, normal(5, 100, shape.row_width), ("f32", "f32"))
        assert np.abs(both[0] - both[1]).max() <= limit
