"""Rope, the paged KV cache and attention: formulas, rounding, and independence of the batch."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, KVCodec, RaggedBatch
from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps

SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=8, scale=8**-0.5)
WIDTH = (4 + 2 * 2) * 8
KV_CODECS: tuple[KVCodec, ...] = ("f32", "bf16")
Floats = npt.NDArray[np.float32]


@pytest.fixture
def ops() -> ReferenceOps:
    return ReferenceOps()


def rows(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def cache(
    ops: ReferenceOps, k: KVCodec = "f32", v: KVCodec = "f32", blocks: int = 24
) -> KVCacheArrays:
    return ops.kv_cache(KVCacheSpec.uniform(2, 2, 8, 16, blocks, k, v))


def batch_of(*pieces: tuple[list[int], int, int]) -> RaggedBatch:
    """A batch of (block table, first position, count) per request."""
    width = max(len(table) for table, _, _ in pieces)
    positions = [np.arange(first, first + count) for _, first, count in pieces]
    total = sum(count for _, _, count in pieces)
    return RaggedBatch(
        token_ids=np.zeros(total, np.int32),
        positions=np.concatenate(positions).astype(np.int32),
        query_start=np.cumsum([0, *(count for _, _, count in pieces)]).astype(np.int32),
        block_tables=(
            np.array([table + [0] * (width - len(table)) for table, _, _ in pieces], np.int32),
        ),
        logit_rows=np.zeros(0, np.int32),
    )


def attend(ops: ReferenceOps, qkv: Floats, kv: KVCacheArrays, batch: RaggedBatch) -> Floats:
    ops.kv_write(qkv, SHAPE, kv, 1, batch)
    return ops.paged_attention(qkv, SHAPE, kv, 1, batch)


def plain_attention(qkv: Floats, k_codec: KVCodec, v_codec: KVCodec) -> npt.NDArray[np.float64]:
    """Softmax over spans of 64, in plain loops: the interface's words, written another way."""

    def maybe(x: Floats, codec: KVCodec) -> npt.NDArray[np.float64]:
        return (x.astype(ml_dtypes.bfloat16) if codec == "bf16" else x).astype(np.float64)

    count = len(qkv)
    heads = qkv.reshape(count, 8, 8)
    q, k, v = (
        maybe(heads[:, :4], k_codec),
        maybe(heads[:, 4:6], k_codec),
        maybe(heads[:, 6:], v_codec),
    )
    out = np.zeros((count, 4, 8))
    for token in range(count):
        for head in range(4):
            top, total, mixed = -np.inf, 0.0, np.zeros(8)
            for start in range(0, token + 1, 64):
                stop = min(start + 64, token + 1)
                scores = [
                    float(q[token, head] @ k[p, head // 2]) * SHAPE.scale
                    for p in range(start, stop)
                ]
                new = max(top, *scores)
                weights = (
                    maybe(np.exp(np.array(scores) - new).astype(np.float32), v_codec)
                    if v_codec == "bf16"
                    else np.exp(np.array(scores) - new)
                )
                total = total * np.exp(top - new) + weights.sum()
                mixed = mixed * np.exp(top - new) + weights @ v[start:stop, head // 2]
                top = new
            out[token, head] = mixed / total
    return out.reshape(count, 32)


@pytest.mark.computes("K and V", "reference", "bound", kinds=KV_CODECS)
@pytest.mark.parametrize("k", KV_CODECS)
@pytest.mark.parametrize("v", KV_CODECS)
def test_attention_is_the_softmax_over_spans(ops: ReferenceOps, k: KVCodec, v: KVCodec) -> None:
    qkv = rows(150)
    out = attend(ops, qkv, cache(ops, k, v), batch_of((list(range(1, 11)), 0, 150)))
    np.testing.assert_allclose(out, plain_attention(qkv, k, v), rtol=1e-6, atol=1e-7)


def test_span_order_does_not_change_the_softmax(ops: ReferenceOps) -> None:
    """Online over spans equals all at once, when nothing is rounded."""
    qkv = rows(150, seed=3)
    out = attend(ops, qkv, cache(ops), batch_of((list(range(1, 11)), 0, 150)))
    heads = qkv.astype(np.float64).reshape(150, 8, 8)
    scores = np.einsum("thd,phd->thp", heads[:, :4], heads[:, [4, 4, 5, 5]]) * SHAPE.scale
    scores[np.triu(np.ones((150, 150), bool), 1)[:, None].repeat(4, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    expected = np.einsum("thp,phd->thd", weights, heads[:, [6, 6, 7, 7]]).reshape(150, 32)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)


def test_extreme_scores_stay_finite(ops: ReferenceOps) -> None:
    qkv = rows(130) * np.float32(300)
    out = attend(ops, qkv, cache(ops), batch_of((list(range(1, 11)), 0, 130)))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("k", KV_CODECS)
@pytest.mark.parametrize("v", KV_CODECS)
def test_chunks_and_company_change_no_bit(ops: ReferenceOps, k: KVCodec, v: KVCodec) -> None:
    mine, other = rows(100), rows(40, seed=1)
    alone = attend(ops, mine, cache(ops, k, v), batch_of(([1, 2, 3, 4, 5, 6, 7], 0, 100)))
    table, other_table = [9, 3, 7, 1, 8, 2, 6], [4, 10, 5]
    for chunk in (1, 13, 64):
        kv = cache(ops, k, v)
        pieces = []
        for first in range(0, 100, chunk):
            count = min(chunk, 100 - first)
            late = min(first, 39)
            batch = batch_of((other_table, late, 1), (table, first, count))
            qkv = np.concatenate([other[late : late + 1], mine[first : first + count]])
            pieces.append(attend(ops, qkv, kv, batch)[1:])
        assert np.array_equal(np.concatenate(pieces), alone)


def test_layers_and_unused_table_entries_are_left_alone(ops: ReferenceOps) -> None:
    qkv, kv = rows(20), cache(ops)
    batch = batch_of(([5, 6, 0], 0, 20))
    garbage = replace(batch, block_tables=(np.array([[5, 6, 99999]], np.int32),))
    out = attend(ops, qkv, kv, garbage)
    assert np.array_equal(out, attend(ops, qkv, cache(ops), batch))
    other, own = kv.arrays.places[0, 0], kv.arrays.places[0, 1]
    assert not other.k.codes.any() and not other.v.codes.any()
    assert {int(block) for block in np.flatnonzero(own.k.codes.any(axis=(1, 2, 3)))} == {5, 6}


def test_bf16_cache_rounds_to_nearest_even(ops: ReferenceOps) -> None:
    qkv, kv = rows(1), cache(ops, "bf16", "bf16")
    qkv[0, 32:34] = 1 + 2.0**-8, 1 + 3 * 2.0**-8
    ops.kv_write(qkv, SHAPE, kv, 0, batch_of(([3], 0, 1)))
    codes = kv.arrays.places[0, 0].k.codes
    assert codes[3, 0, 0, :2].astype(np.float32).tolist() == [1, 1 + 2.0**-6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_start": np.array([0, 19], np.int32)}, "does not rise from 0 to 20"),
        ({"positions": np.arange(19, dtype=np.int32)}, "equally many"),
        ({"positions": np.arange(30, 50, dtype=np.int32)}, r"position 48 is not in \[0, 48\)"),
        ({"block_tables": (np.array([[5, 24, 0]], np.int32),)}, r"block id 24 is not in \[0, 24\)"),
        ({"block_tables": (np.zeros((2, 3), np.int32),)}, "2 rows of block tables for 1 requests"),
        ({"block_tables": ()}, "the batch has 0 block tables"),
    ],
)
def test_a_batch_that_is_not_one_is_refused(
    ops: ReferenceOps, change: dict[str, npt.NDArray[np.int32]], message: str
) -> None:
    batch = replace(batch_of(([5, 6, 0], 0, 20)), **change)
    with pytest.raises(ValueError, match=message):
        ops.kv_write(rows(20), SHAPE, cache(ops), 0, batch)


def test_shapes_that_do_not_fit_are_refused(ops: ReferenceOps) -> None:
    batch, kv = batch_of(([5, 6, 0], 0, 20)), cache(ops)
    with pytest.raises(ValueError, match="layer 2 is not in"):
        ops.paged_attention(rows(20), SHAPE, kv, 2, batch)
    with pytest.raises(ValueError, match="multiple of num_kv_heads"):
        ops.kv_write(rows(20), replace(SHAPE, num_heads=3), kv, 0, batch)
    with pytest.raises(ValueError, match="the cache holds 2 heads of 8"):
        ops.kv_write(rows(20), AttentionShape(6, 1, 8, 1.0), kv, 0, batch)
    for size in (8, 24, 128):
        with pytest.raises(ValueError, match=f"block_size {size}"):
            ops.kv_cache(KVCacheSpec.uniform(1, 1, 8, size, 4, "f32", "f32"))
    with pytest.raises(ValueError, match="num_blocks"):
        ops.kv_cache(KVCacheSpec.uniform(1, 1, 8, 16, 0, "f32", "f32"))


def test_rope_rotates_pairs_half_a_head_apart(ops: ReferenceOps) -> None:
    inv_freq = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    table, qkv = ops.rope_table(inv_freq, 50), rows(3)
    before, positions = qkv.copy(), np.array([0, 7, 49], np.int32)
    ops.rope(qkv, SHAPE, table, positions)
    heads = before.astype(np.float64).reshape(3, 8, 8)
    turned = (heads[:, :6, :4] + 1j * heads[:, :6, 4:]) * np.exp(
        1j * positions[:, None] * inv_freq
    )[:, None]
    expected = np.concatenate([turned.real, turned.imag], axis=2).reshape(3, 48)
    np.testing.assert_allclose(qkv[:, :48], expected, rtol=1e-6, atol=3e-7)
    assert np.array_equal(qkv[:, 48:], before[:, 48:])  # v
    assert np.array_equal(qkv[0], before[0])  # position 0


def test_rope_norms_heads_first_and_leaves_the_rest_of_a_partial_head(ops: ReferenceOps) -> None:
    table = ops.rope_table(np.array([1.0, 0.5]), 10)
    q_norm, k_norm = (Norm(rows(1, seed)[0, :8], 1e-6) for seed in (1, 2))
    qkv = rows(2)
    normed = qkv.reshape(16, 8).copy()
    for row in (0, 8):
        normed[row : row + 4] = ops.norm(normed[row : row + 4], q_norm)
        normed[row + 4 : row + 6] = ops.norm(normed[row + 4 : row + 6], k_norm)
    expected, positions = normed.reshape(2, WIDTH).copy(), np.array([3, 9], np.int32)
    ops.rope(expected, SHAPE, table, positions)
    ops.rope(qkv, SHAPE, table, positions, q_norm=q_norm, k_norm=k_norm)
    assert np.array_equal(qkv, expected)
    assert np.array_equal(qkv.reshape(16, 8)[:, 4:], normed[:, 4:])


def test_rope_tables_are_exact_far_out(ops: ReferenceOps) -> None:
    """Angles in float64: at position 100 000 float32 angles are off by 0.004 rad."""
    table = ops.rope_table(np.array([1.0, 0.1]), 100_001, attention_factor=2.0)
    assert table.rotary_dim == 4
    assert table.cos[100_000, 1] == np.float32(2 * np.cos(10_000.0))
    assert table.sin[100_000, 0] == np.float32(2 * np.sin(100_000.0))


def test_rope_refuses_positions_past_its_table(ops: ReferenceOps) -> None:
    table = ops.rope_table(np.ones(4), 5)
    with pytest.raises(ValueError, match=r"position 5 is not in \[0, 5\)"):
        ops.rope(rows(1), SHAPE, table, np.array([5], np.int32))
    with pytest.raises(ValueError, match="rotary_dim 16 exceeds head_dim 8"):
        ops.rope(rows(1), SHAPE, ops.rope_table(np.ones(8), 5), np.array([0], np.int32))
