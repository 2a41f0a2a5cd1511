"""The span that a token is in, kept in bf16 beside K and V of few bits: read by its own tokens
alone, with the same bits whatever came at once; and codecs of layers apart from each other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from headrace.ops import make_ops
from headrace.ops.cpu import CpuOps
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheSpec, KVCodec, LayerPlace, RaggedBatch
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.attention_cases import bound
from tests.ops.cpu.cases import LEVELS, Request, batch_of, named, shuffled_blocks

F32 = np.ndarray
CASES: tuple[tuple[AttentionShape, tuple[KVCodec, KVCodec]], ...] = (
    (AttentionShape(4, 2, 48, 0.3), ("q4_0", "q4_0")),
    (AttentionShape(2, 1, 16, 0.3), ("fp8", "fp8")),
    (AttentionShape(2, 1, 32, 0.3, window=70, value_dim=20), ("int8", "q4_0")),
    (AttentionShape(17, 1, 24, 0.3, value_dim=16, latent=True), ("q8_0", "q8_0")),
)
STARTS, LENGTHS, BLOCK_SIZE = (0, 100, 16, 63), (70, 134, 17, 66), 16


def near_spec(shape: AttentionShape, blocks: int, k: KVCodec, v: KVCodec) -> KVCacheSpec:
    """Two layers of one table, and in another what is near; half of the blocks for each."""
    places = tuple(
        LayerPlace(
            0, layer, shape.num_kv_heads, shape.head_dim, shape.value_dim, shape.latent,
            near=(1, layer),
        )
        for layer in range(2)
    )  # fmt: skip
    return KVCacheSpec(places, BLOCK_SIZE, 2 * blocks, k, v)


def attended(ops: Ops, shape: AttentionShape, codecs: tuple[KVCodec, KVCodec], step: int) -> F32:
    """Of the new tokens of ragged requests, `step` of each at a time; those before them at once."""
    tables = shuffled_blocks(1, list(LENGTHS), BLOCK_SIZE)
    blocks = sum(map(len, tables))
    kv = ops.kv_cache(near_spec(shape, blocks, *codecs))

    def batch(requests: list[Request]) -> RaggedBatch:
        of = batch_of(requests)
        (table,) = of.block_tables
        return replace(of, block_tables=(table, table + np.int32(blocks)))

    before = [Request(i, 0, start, tables[i]) for i, start in enumerate(STARTS) if start]
    ops.kv_write(np.concatenate([r.rows(shape) for r in before]), shape, kv, 1, batch(before))
    found: dict[int, list[F32]] = {}
    for at in range(0, max(LENGTHS), step):
        now = [
            (i, Request(i, start + at, min(step, length - start - at), tables[i]))
            for i, (start, length) in enumerate(zip(STARTS, LENGTHS, strict=True))
            if start + at < length
        ]
        if not now:
            break
        of = batch([request for _, request in now])
        rows = np.concatenate([request.rows(shape) for _, request in now])
        ops.kv_write(rows, shape, kv, 1, of)
        y = np.asarray(ops.paged_attention(rows, shape, kv, 1, of))
        for (i, _), part in zip(now, np.split(y, of.query_start[1:-1]), strict=True):
            found.setdefault(i, []).append(part)
    return np.concatenate([part for i in sorted(found) for part in found[i]])


@cache
def expected(shape: AttentionShape, codecs: tuple[KVCodec, KVCodec]) -> F32:
    """The reference's, once for all levels."""
    return attended(ReferenceOps(), shape, codecs, 999)


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_what_the_reference_computes_however_many_come_at_once(level: str) -> None:
    ops = CpuOps(level, 1)
    for shape, codecs in CASES:
        found = attended(ops, shape, codecs, 999)
        rows = np.concatenate(
            [Request(i, 0, n, np.zeros(1, np.int32)).rows(shape) for i, n in enumerate(LENGTHS)]
        )
        with named(codecs=codecs, shape=shape):
            error = np.abs(found - expected(shape, codecs)).max()
            assert error <= bound(shape, rows, codecs, level), error
            for step in (1, 30):
                assert (attended(ops, shape, codecs, step) == found).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_only_tokens_of_a_span_read_what_is_near_of_it(backend: str) -> None:
    """What lies in the other place of a span may be anything."""
    ops = make_ops(backend, threads=1)
    shape = AttentionShape(1, 1, 16, 0.5)
    rows = np.random.default_rng(5).standard_normal((130, 48)).astype(np.float32)
    outputs = []
    for spoilt in (False, True):
        kv = ops.kv_cache(near_spec(shape, 9, "int8", "int8"))
        stored, near = np.arange(9, dtype=np.int32)[None], np.arange(9, 18, dtype=np.int32)[None]

        def put(values: F32, first: int, tables: tuple[F32, F32], kv: object = kv) -> F32:
            batch = RaggedBatch(
                np.zeros(len(values), np.int32),
                np.arange(first, first + len(values), dtype=np.int32),
                np.array([0, len(values)], np.int32), tables, np.zeros(0, np.int32),
            )  # fmt: skip
            ops.kv_write(values, shape, kv, 0, batch)  # type: ignore[arg-type]
            return np.asarray(ops.paged_attention(values, shape, kv, 0, batch))  # type: ignore[arg-type]

        put(rows[:64], 0, (stored, near))
        if spoilt:
            # The near part of the first span is given to other tokens, as when it is let go of.
            other = np.zeros((1, 9), np.int32)
            other[0, :4] = [8, 8, 8, 8]
            put(rows[:64] * 50, 0, (other, near))
        outputs.append(put(rows[64:], 64, (stored, near)))
    assert (outputs[0] == outputs[1]).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("codec", ["f32", "bf16"])
def test_nothing_is_near_beside_kinds_of_more_bits(backend: str, codec: KVCodec) -> None:
    ops = make_ops(backend, threads=1)
    with pytest.raises(ValueError, match=f"eight and four bits, not beside {codec}"):
        ops.kv_cache(near_spec(CASES[0][0], 1, "int8", codec))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_layers_of_one_cache_have_codecs_of_their_own(backend: str) -> None:
    ops = make_ops(backend, threads=1)
    shape = AttentionShape(2, 1, 32, 0.3)
    codecs: tuple[tuple[KVCodec, KVCodec], ...] = (("bf16", "f32"), ("q4_0", "int8"))
    request = Request(3, 0, 70, np.arange(5, dtype=np.int32))
    rows, batch = request.rows(shape), batch_of([request])
    places = tuple(LayerPlace(0, i, 1, 32, k_codec=k, v_codec=v) for i, (k, v) in enumerate(codecs))
    spec = KVCacheSpec(places, 16, 5, "f32", "f32")
    mixed = ops.kv_cache(spec)
    assert spec.block_bytes == 16 * ((64 + 128) + (16 + 4 + 32 + 4))
    for layer, (k, v) in enumerate(codecs):
        alone = ops.kv_cache(KVCacheSpec.uniform(2, 1, 32, 16, 5, k, v))
        for kv in (mixed, alone):
            ops.kv_write(rows, shape, kv, layer, batch)
        found, expected = (
            ops.paged_attention(rows, shape, kv, layer, batch) for kv in (mixed, alone)
        )
        assert (np.asarray(found) == np.asarray(expected)).all()
