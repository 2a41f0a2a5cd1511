"""From a plan to tokens: the ragged batch, the model's forward, the sampler.

This runs every step, so arrays are built by whole columns, and block tables live in one array with
a row per slot of which only what has changed is written; it grows with the slots and lengths used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.engine.model import Model
from headrace.engine.request import Request
from headrace.engine.sampler import NOT_YET, Draw, Sampler
from headrace.engine.scheduler import Row
from headrace.ops.interface import KVCacheArrays, RaggedBatch


class Runner:
    """A model with its KV cache and sampler. Keeps nothing of a request but its table's row."""

    def __init__(
        self,
        model: Model,
        kv: KVCacheArrays,
        sampler: Sampler,
    ) -> None:
        self._model = model
        self._kv = kv
        self._sampler = sampler
        self._tables = np.zeros((0, 0), np.int32)

    def run(self, rows: Sequence[Row]) -> list[Draw]:
        """Compute the tokens of `rows` and draw for those that sample; one entry per row."""
        logits = self._model.forward(self._batch(rows), self._kv)
        sampling = [row.request for row in rows if row.samples]
        if not sampling:
            return [NOT_YET] * len(rows)
        draws = self._sampler.sample(logits, sampling)
        if len(draws) == len(rows):
            return draws
        drawn = iter(draws)
        return [next(drawn) if row.samples else NOT_YET for row in rows]

    def _batch(self, rows: Sequence[Row]) -> RaggedBatch:
        starts = np.array([row.start for row in rows], np.int32)
        counts = np.array([row.num_tokens for row in rows], np.int32)
        query_start = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=query_start[1:])
        token_ids: list[int] = []
        for request, start, count, _ in rows:
            if count == 1:
                token_ids.append(request.token_ids[start])
            else:
                token_ids += request.token_ids[start : start + count]
        positions = np.arange(len(token_ids), dtype=np.int32)
        positions += np.repeat(starts - query_start[:-1], counts)
        samples = np.array([row.samples for row in rows], np.bool_)
        return RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            query_start=query_start,
            block_tables=self._block_tables([row.request for row in rows]),
            logit_rows=query_start[1:][samples] - np.int32(1),
        )

    def _block_tables(self, requests: list[Request]) -> npt.NDArray[np.int32]:
        longest = 0
        for request in requests:
            length = len(request.block_table)
            longest = max(longest, length)
            synced = request.table_synced
            if synced == length:
                continue
            self._cover(request.slot, length)
            row = self._tables[request.slot]
            if synced == 0:
                row[:] = 0  # of whoever had the slot before
            row[synced:length] = request.block_table[synced:]
            request.table_synced = length
        slots = [request.slot for request in requests]
        return self._tables[slots, :longest]

    def _cover(self, slot: int, length: int) -> None:
        """Make the tables hold `length` blocks in row `slot`; they grow to powers of two."""
        rows, columns = self._tables.shape
        if slot < rows and length <= columns:
            return
        shape = (max(rows, 1 << slot.bit_length()), max(columns, 1 << (length - 1).bit_length()))
        grown = np.zeros(shape, np.int32)
        grown[:rows, :columns] = self._tables
        self._tables = grown
