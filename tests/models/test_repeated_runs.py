"""Steps of every family, repeated by the backend as they come again: the bits of runs made anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headrace.engine.repeated_runs import RepeatedRuns
from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array
from tests.models.cases import Session
from tests.tiny import Family, tiny_checkpoint
from tests.tiny_families import tiny_family_names

MADE_ANEW = {"gemma4_text"}
"""Families with factors of rows that the host makes in each step."""
LENGTHS = (70, 50)
COUNTS = ((1, 1), (2, 2), (3, 3), (1, 3), (3, 1), (4, 0), (0, 2), (2, 4), (1, 1))
"""Tokens of each request in a step; those of no tokens are not in its batch."""
NUM_SIZES = len({sum(counts) for counts in COUNTS})
ROUNDS = 2


def batch_of(
    requests: Sequence[Sequence[int]],
    starts: Sequence[int],
    counts: Sequence[int],
    tables: Sequence[Array],
) -> RaggedBatch:
    """Of each request so many tokens from there on."""
    spans = [range(start, start + count) for start, count in zip(starts, counts, strict=True)]
    present = [at for at, count in enumerate(counts) if count]
    ids = [requests[at][position] for at in present for position in spans[at]]
    return RaggedBatch(
        token_ids=np.array(ids, np.int32),
        positions=np.array([position for at in present for position in spans[at]], np.int32),
        query_start=np.cumsum([0, *(counts[at] for at in present)]).astype(np.int32),
        block_tables=tuple(table[present] for table in tables),
        logit_rows=np.arange(len(ids), dtype=np.int32),
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
    at = [
        length - ROUNDS * sum(counts)
        for length, counts in zip(LENGTHS, zip(*COUNTS, strict=True), strict=True)
    ]
    for request, start in enumerate(at):
        counts = [0, 0]
        counts[request] = start
        model.forward(batch_of(requests, (0, 0), counts, tables), kv)
    for counts in COUNTS * ROUNDS:
        (logits,) = runs(batch_of(requests, at, counts, tables))
        row = 0
        for request, count in enumerate(counts):
            begin = at[request]
            mine = np.asarray(logits)[row : row + count]
            assert np.array_equal(mine, expected[request][begin : begin + count])
            at[request] += count
            row += count
    assert len(runs._known) == (0 if family in MADE_ANEW else NUM_SIZES)
