"""Requests whose tables begin alike read K and V once, with the bits of each request alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.kv import AttentionShape, KVCodec
from tests.ops.cpu.attention_cases import new_cache
from tests.ops.cpu.cases import KV_CODECS, Request, batch_of, by_level, named, normal, shape_of

BLOCK_SIZE = 32
# Tokens before, tokens of the step, and of how many blocks the one before has the same.
REQUESTS = (
    (300, 1, 0), (301, 1, 9), (330, 3, 6), (90, 30, 2), (200, 1, 2), (40, 1, 1), (500, 2, 0),
)  # fmt: skip
SHAPES = (
    shape_of(2, 2, 32),
    replace(shape_of(1, 4, 64), window=120),
    replace(shape_of(2, 1, 48), softcap=5.0, chunk=128),
    AttentionShape(6, 1, 40, 0.2, value_dim=24, latent=True),
)


def sharing_requests(count: int) -> list[Request]:
    """The requests, with tables in one cache of so many blocks; ids in no order."""
    free = iter(np.random.default_rng(3).permutation(count).astype(np.int32))
    found: list[Request] = []
    for seed, (before, now, shared) in enumerate(REQUESTS):
        blocks = [next(free) for _ in range(-(-(before + now) // BLOCK_SIZE) - shared)]
        of_last = found[-1].blocks[:shared] if shared else np.empty(0, np.int32)
        found.append(
            Request(seed, before, now, np.concatenate([of_last, np.array(blocks, np.int32)]))
        )
    return found


@pytest.mark.parametrize("level,cases", by_level(KV_CODECS, SHAPES, others=pytest.mark.matrix))
def test_what_is_shared_does_not_show(
    level: str, cases: list[tuple[tuple[KVCodec, KVCodec], AttentionShape]]
) -> None:
    requests = sharing_requests(64)
    for (k, v), shape in cases:
        ops = CpuOps(level, 2)
        kv = new_cache(ops, shape, 64, BLOCK_SIZE, k, k if shape.latent else v)
        # What others wrote to shared blocks stays as the last of them left it.
        for request in requests:
            whole = Request(request.seed, 0, request.start + request.count, request.blocks)
            ops.kv_write(whole.rows(shape), shape, kv, 1, batch_of([whole]))
        rows = [normal(50 + r.seed, r.count, shape.row_width) for r in requests]
        together = ops.paged_attention(
            np.concatenate(rows), shape, kv, 1, ops.bind(batch_of(requests), kv)
        )
        alone = [
            ops.paged_attention(of, shape, kv, 1, batch_of([request]))
            for of, request in zip(rows, requests, strict=True)
        ]
        with named(k=k, v=v, shape=shape):
            assert np.array_equal(together, np.concatenate(alone))
