"""Requests that are drafted for in a step, and the batch of what a pass computes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.drafts.passes.draft_cache import Twin
from headrace.engine.kv.block_tables import BlockTables
from headrace.engine.request import Request
from headrace.ops.kv import RaggedBatch


class DraftRow:
    """A request that is drafted for in a step."""

    def __init__(self, request: Request, twin: Twin, count: int, most: int) -> None:
        self.request = request
        self.twin = twin
        self.start = twin.num_written
        """Of the tokens that the next pass computes."""
        self.count = count
        """How many these are."""
        self.most = most
        """Drafts wanted."""

    @property
    def draws(self) -> bool:
        """Whether the pass computes all that there is, so that a draft follows."""
        return self.start + self.count == len(self.twin.request.token_ids)


def batch_of(rows: Sequence[DraftRow], block_tables: BlockTables) -> RaggedBatch:
    """What the next pass computes of these rows, with logits behind each that draws."""
    starts = np.array([row.start for row in rows], np.int32)
    tables = block_tables.of([row.twin.request for row in rows])
    if all(row.count == 1 and row.draws for row in rows):
        # Every pass of a chain but the first: what it does not need would take as long as the
        # products of a small model.
        last = np.array([row.twin.request.token_ids[-1] for row in rows], np.int32)
        steps = np.arange(len(rows) + 1, dtype=np.int32)
        return RaggedBatch(last, starts, steps, tables, steps[:-1])
    counts = np.array([row.count for row in rows], np.int32)
    query_start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])
    token_ids: list[int] = []
    for row in rows:
        token_ids += row.twin.request.token_ids[row.start : row.start + row.count]
    positions = np.arange(len(token_ids), dtype=np.int32)
    positions += np.repeat(starts - query_start[:-1], counts)
    draws = np.array([row.draws for row in rows], np.bool_)
    return RaggedBatch(
        token_ids=np.array(token_ids, np.int32),
        positions=positions,
        query_start=query_start,
        block_tables=tables,
        logit_rows=query_start[1:][draws] - np.int32(1),
    )
