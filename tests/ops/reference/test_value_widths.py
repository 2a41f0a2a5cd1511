"""Values of a width of their own, and latent values: attention against a formula in loops."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.kv import AttentionShape, KVCacheSpec, KVCodec, RaggedBatch
from headrace.ops.reference import ReferenceOps

OPS = ReferenceOps()
NARROW = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=12, scale=0.3, value_dim=5)
WIDE = replace(NARROW, value_dim=20)
LATENT = AttentionShape(
    num_heads=4, num_kv_heads=1, head_dim=12, scale=0.3, value_dim=8, latent=True
)
SHAPES = (NARROW, WIDE, LATENT, replace(LATENT, num_kv_heads=2, value_dim=0))
TABLE = [5, 2, 7, 1, 4]
TOKENS = 75
Floats = npt.NDArray[np.float32]


def spec_of(shape: AttentionShape, k: KVCodec, v: KVCodec) -> KVCacheSpec:
    return KVCacheSpec.uniform(
        num_layers=2,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        block_size=16,
        num_blocks=8,
        k_codec=k,
        v_codec=v,
        value_dim=shape.value_dim,
        latent=shape.latent,
    )


def batch_of(first: int, count: int) -> RaggedBatch:
    return RaggedBatch(
        token_ids=np.zeros(count, np.int32),
        positions=np.arange(first, first + count, dtype=np.int32),
        query_start=np.array([0, count], np.int32),
        block_tables=(np.array([TABLE], np.int32),),
        logit_rows=np.zeros(0, np.int32),
    )


def rows(shape: AttentionShape) -> Floats:
    return np.random.default_rng(5).standard_normal((TOKENS, shape.row_width)).astype(np.float32)


def plain_attention(
    qkv: Floats, shape: AttentionShape, k_codec: KVCodec, v_codec: KVCodec
) -> npt.NDArray[np.float64]:
    """Softmax over all positions at once, a head and a token at a time; nothing but K, V and q
    is rounded."""

    def stored(x: Floats, codec: KVCodec) -> npt.NDArray[np.float64]:
        return (x.astype(ml_dtypes.bfloat16) if codec == "bf16" else x).astype(np.float64)

    dim, values_of = shape.head_dim, shape.value_dim or shape.head_dim
    out = np.zeros((len(qkv), shape.num_heads, values_of))
    for head in range(shape.num_heads):
        kv_head = head * shape.num_kv_heads // shape.num_heads
        q = stored(qkv[:, head * dim : (head + 1) * dim], k_codec)
        k_at = (shape.num_heads + kv_head) * dim
        keys = stored(qkv[:, k_at : k_at + dim], k_codec)
        if shape.latent:
            values = keys[:, dim - values_of :]
        else:
            v_at = (shape.num_heads + shape.num_kv_heads) * dim + kv_head * values_of
            values = stored(qkv[:, v_at : v_at + values_of], v_codec)
        for token in range(len(qkv)):
            scores = keys[: token + 1] @ q[token] * shape.scale
            p = np.exp(scores - scores.max())
            out[token, head] = p @ values[: token + 1] / p.sum()
    return out.reshape(len(qkv), -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", ["f32", "bf16"])
@pytest.mark.parametrize("v", ["f32", "bf16"])
def test_attention_is_the_softmax_over_values_of_their_width(
    shape: AttentionShape, k: KVCodec, v: KVCodec
) -> None:
    kv, qkv = OPS.kv_cache(spec_of(shape, k, v)), rows(shape)
    OPS.kv_write(qkv, shape, kv, 1, batch_of(0, TOKENS))
    out = OPS.paged_attention(qkv, shape, kv, 1, batch_of(0, TOKENS))
    assert out.shape == (TOKENS, shape.output_width)
    rounded = (k if shape.latent else v) == "bf16"
    tolerance = 4e-3 if rounded else 1e-6  # p is rounded to bfloat16, which is 2**-9 of it
    expected = plain_attention(qkv, shape, k, v)
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
    alone = OPS.paged_attention(qkv[-1:], shape, kv, 1, batch_of(TOKENS - 1, 1))
    assert np.array_equal(alone, out[-1:])


def test_latent_values_are_stored_once_in_the_codec_of_keys() -> None:
    spec = spec_of(LATENT, "bf16", "f32")
    assert spec.block_bytes == 2 * 16 * 12 * 2
    kv = OPS.kv_cache(spec)
    stored = kv.arrays.places[0, 1]
    assert np.shares_memory(stored.k.codes, stored.v.codes)
    assert spec_of(NARROW, "bf16", "f32").block_bytes == 2 * 16 * 2 * (12 * 2 + 5 * 4)


def test_rope_leaves_values_alone() -> None:
    table = OPS.rope_table(np.array([1.0, 0.5]), TOKENS)
    for shape in (NARROW, LATENT):
        qkv = rows(shape)
        before = qkv.copy()
        OPS.rope(qkv, shape, table, np.arange(TOKENS, dtype=np.int32))
        heads = shape.num_heads + shape.num_kv_heads
        rotated = (qkv != before)[1:].any(axis=0)
        assert not rotated[heads * 12 :].any()
        assert (
            rotated[: heads * 12].reshape(heads, 12).tolist() == [[True] * 4 + [False] * 8] * heads
        )


def test_widths_that_do_not_agree_are_refused() -> None:
    kv, batch = OPS.kv_cache(spec_of(NARROW, "f32", "f32")), batch_of(0, TOKENS)
    with pytest.raises(ValueError, match=r"holds 2 heads of 12 with values of 5, .* of 20"):
        OPS.kv_write(rows(WIDE), WIDE, kv, 0, batch)
    with pytest.raises(ValueError, match=r"2 heads of 12 whose last 5 are the values"):
        latent = replace(NARROW, latent=True)
        OPS.paged_attention(rows(latent), latent, kv, 0, batch)
    with pytest.raises(ValueError, match=r"qkv must be float32\[N, 82\]"):
        OPS.kv_write(rows(WIDE), NARROW, kv, 0, batch)
    with pytest.raises(ValueError, match="value_dim 13 exceeds head_dim 12"):
        OPS.kv_cache(spec_of(replace(LATENT, value_dim=13), "f32", "f32"))
    with pytest.raises(ValueError, match="value_dim -1 is negative"):
        OPS.kv_cache(spec_of(replace(NARROW, value_dim=-1), "f32", "f32"))
