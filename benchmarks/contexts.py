"""Contexts of requests in a KV cache, of random K and V: what is in them changes no time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from headrace.models import Model
from headrace.models.layer_cache import CacheLayout
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch

BLOCK_SIZE, WRITTEN_TOKENS = 32, 512
TOKEN = 7
"""The id of every token; any other would do."""

Table = npt.NDArray[np.int32]


def batch_of(start: int, tokens: int, tables: Sequence[Table]) -> RaggedBatch:
    """So many tokens of each request from a position on, and the logits of its last.

    tables: of each group of layers, with a row for each request.
    """
    requests = len(tables[0])
    starts = (np.arange(requests + 1) * tokens).astype(np.int32)
    return RaggedBatch(
        token_ids=np.full(starts[-1], TOKEN, np.int32),
        positions=np.tile(np.arange(start, start + tokens, dtype=np.int32), requests),
        query_start=starts,
        block_tables=tuple(tables),
        logit_rows=starts[1:] - 1,
    )


def pieces(prefix: int, end: int) -> Iterator[tuple[int, int]]:
    """Positions of a request that are written at once; none are of the prefix and behind it."""
    for first, last in ((0, prefix), (prefix, end)):
        for start in range(first, last, WRITTEN_TOKENS):
            yield start, min(start + WRITTEN_TOKENS, last)


def write_random(
    model: Model,
    ops: Ops,
    kv: KVCacheArrays,
    layout: CacheLayout,
    batch: RaggedBatch,
    rng: np.random.Generator,
) -> None:
    """Write K and V of a batch's tokens in every layer that keeps any."""
    shapes = [model.config.attention_of(layer) for layer in range(len(layout.places))]
    widest = max(shape.row_width for shape in shapes)
    rows = rng.standard_normal((batch.num_tokens, widest), np.float32)
    for layer, (shape, place) in enumerate(zip(shapes, layout.places, strict=True)):
        if place is not None:
            of_layer = np.ascontiguousarray(rows[:, : shape.row_width])
            ops.kv_write(of_layer, shape, kv, layer, batch)
