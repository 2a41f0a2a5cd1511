"""Windows and softcaps against the full softmax with a mask, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.kv import AttentionShape, KVCacheSpec, RaggedBatch
from headrace.ops.reference import ReferenceOps

SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3)
WIDTH = 8 * 8
Floats = npt.NDArray[np.float32]


def batch_of(table: list[int], first: int, count: int) -> RaggedBatch:
    return RaggedBatch(
        token_ids=np.zeros(count, np.int32),
        positions=np.arange(first, first + count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=(np.array([table], np.int32),),
        logit_rows=np.zeros(0, np.int32),
    )


def masked_softmax(qkv: Floats, shape: AttentionShape) -> npt.NDArray[np.float64]:
    heads = qkv.astype(np.float64).reshape(len(qkv), 8, 8)
    scores = np.einsum("thd,phd->htp", heads[:, :4], heads[:, [4, 4, 5, 5]]) * shape.scale
    if shape.softcap:
        scores = shape.softcap * np.tanh(scores / shape.softcap)
    query, key = np.arange(len(qkv))[:, None], np.arange(len(qkv))[None]
    seen = key <= query
    if shape.window:
        seen &= key > query - shape.window
    weights = np.where(seen, np.exp(scores - scores.max()), 0)
    weights /= weights.sum(axis=2, keepdims=True)
    out = np.einsum("htp,phd->thd", weights, heads[:, [6, 6, 7, 7]])
    return np.asarray(out.reshape(len(qkv), 32))


@pytest.mark.parametrize("window", [0, 1, 2, 16, 63, 64, 65, 149, 150, 1000])
@pytest.mark.parametrize("softcap", [0.0, 0.5, 30.0])
def test_attention_is_the_masked_softmax(window: int, softcap: float) -> None:
    ops, shape = ReferenceOps(), replace(SHAPE, window=window, softcap=softcap)
    kv = ops.kv_cache(KVCacheSpec.uniform(1, 2, 8, 16, 12, "f32", "f32"))
    qkv = np.random.default_rng(1).standard_normal((150, WIDTH)).astype(np.float32)
    table = [3, 1, 9, 8, 2, 11, 10, 4, 5, 6]
    ops.kv_write(qkv, shape, kv, 0, batch_of(table, 0, 150))
    out = ops.paged_attention(qkv, shape, kv, 0, batch_of(table, 0, 150))
    np.testing.assert_allclose(out, masked_softmax(qkv, shape), rtol=1e-6, atol=1e-7)
    # The last token alone, the blocks before its window forgotten.
    if window:
        table[: max(0, 150 - window) // 16] = [0] * (max(0, 150 - window) // 16)
    stored = kv.arrays.places[0, 0]
    stored.k.codes[0] = stored.v.codes[0] = np.nan
    alone = ops.paged_attention(qkv[149:], shape, kv, 0, batch_of(table, 149, 1))
    assert (alone == out[149:]).all()
