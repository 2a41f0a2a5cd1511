"""Steps of every family, repeated by the backend as they come again: the bits of runs made anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headrace.engine.repeated_runs import RepeatedRuns
from headrace.models import load_model
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import RaggedBatch
from tests.models.cases import Session
from tests.tiny import Family, tiny_checkpoint
from tests.tiny_families import tiny_family_names

MADE_ANEW = {"gemma4_text"}
"""Families with factors of rows that the host makes in each step."""
LENGTHS = (70, 50)
STEPS = 24


def batch_of(
    requests: Sequence[Sequence[int]], starts: Sequence[int], count: int, tables: Array
) -> RaggedBatch:
    """`count` tokens of each request from there on."""
    query_start = np.arange(0, count * len(requests) + 1, count, dtype=np.int32)
    ids = [ids[start : start + count] for ids, start in zip(requests, starts, strict=True)]
    return RaggedBatch(
        token_ids=np.array(ids, np.int32).ravel(),
        positions=np.concatenate([np.arange(start, start + count) for start in starts]).astype(
            np.int32
        ),
        query_start=query_start,
        block_tables=tables,
        logit_rows=np.arange(count * len(requests), dtype=np.int32),
    )


@pytest.mark.parametrize("family", tiny_family_names())
def test_a_repeated_step_gives_the_bits_of_one_made_anew(family: Family, kernels: Ops) -> None:
    model = load_model(tiny_checkpoint(family, "Q8_0"), kernels)
    layout = model.cache_layout
    rng = np.random.default_rng(3)
    requests = [rng.integers(0, 288, length).tolist() for length in LENGTHS]
    expected = [Session(model, kernels).feed(ids) for ids in requests]
    kv = kernels.kv_cache(layout.spec(16, 20 * layout.num_tables, "f32", "f32"))
    tables = layout.tables(np.arange(1, 17, dtype=np.int32).reshape(2, 8))
    runs = RepeatedRuns(kernels, lambda batch, inputs, which: [model.forward(batch, kv)])
    starts = [length - 2 * STEPS for length in LENGTHS]
    for request, start in enumerate(starts):
        alone = tuple(table[request : request + 1] for table in tables)
        model.forward(batch_of(requests[request : request + 1], [0], start, alone), kv)
    at = list(starts)
    for step in range(STEPS):
        count = 1 + step % 3
        (logits,) = runs(batch_of(requests, at, count, tables))
        for request, rows in enumerate(np.split(np.asarray(logits), 2)):
            begin = at[request]
            assert np.array_equal(rows, expected[request][begin : begin + count])
            at[request] += count
    recorded = [known for known in runs._known.values() if not isinstance(known, int | None)]
    assert len(recorded) == (0 if family in MADE_ANEW else 3)
