"""Decode steps that the backend has recorded, by the number of their requests.

A step in which every row is one token and wants its logits has the shapes of its number of requests
alone, once block tables are as wide as the longest request needs. A batch is padded to the next
number that is recorded, by its first row again: that computes the same values and writes them to
the same place, so no block has to be kept free for it, and no other row sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.engine.model import Model
from headrace.ops.interface import Ops
from headrace.ops.kv import FollowingBatch, KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array
from headrace.ops.recording import RunRecording

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of requests. Each pads a batch to twice as much at most, and a step whose weights are the
most that it reads takes the same for twice as many rows."""


def recorded_sizes(most_requests: int) -> tuple[int, ...]:
    """Numbers of requests that steps are recorded for, where up to so many run."""
    return tuple(size for at, size in enumerate(SIZES) if at == 0 or SIZES[at - 1] < most_requests)


class RecordedSteps:
    """The recordings of one model over one KV cache; empty until `record`."""

    def __init__(
        self, model: Model, ops: Ops, kv: KVCacheArrays, *, num_tables: int, max_model_len: int
    ) -> None:
        """num_tables: block tables of a batch. max_model_len: tokens of the longest request."""
        self._model = model
        self._ops = ops
        self._kv = kv
        self._num_tables = num_tables
        self._max_len = max_model_len
        self._columns = -(-max_model_len // kv.spec.block_size)
        self._steps: dict[int, RunRecording] = {}

    @property
    def sizes(self) -> Sequence[int]:
        """Numbers of requests that are recorded, ascending."""
        return tuple(self._steps)

    def record(self, most_requests: int) -> None:
        """Record steps of up to so many requests, or the next number above, as far as the backend
        does. Writes to block 0, so only while it holds nothing."""
        if self._ops.recording != "sizes":
            return
        for size in recorded_sizes(most_requests):
            _, step = self._ops.record_run(self._compute, self._longest(size))
            if step is None:
                return
            self._steps[size] = step

    def forward(self, batch: RaggedBatch) -> Array | None:
        """Logits f32[R, vocab_size] of a step that is recorded, None for any other. They are right
        until the next one."""
        count = batch.num_requests
        if not (count == batch.num_tokens == len(batch.logit_rows)):
            return None
        size = next((size for size in self._steps if size >= count), None)
        if size is None:
            return None
        (logits,) = self._steps[size].repeat(self._padded(batch, size), ())
        return logits[:count]

    def _compute(self, batch: RaggedBatch, inputs: Sequence[Array]) -> Sequence[Array]:
        del inputs
        return [self._model.forward(batch, self._kv)]

    def _longest(self, size: int) -> RaggedBatch:
        """So many requests at the last position there is: what is made for their spans is enough
        for every other."""
        return RaggedBatch(
            token_ids=np.zeros(size, np.int32),
            positions=np.full(size, self._max_len - 1, np.int32),
            query_start=np.arange(size + 1, dtype=np.int32),
            block_tables=tuple(
                np.zeros((size, self._columns), np.int32) for _ in range(self._num_tables)
            ),
            logit_rows=np.arange(size, dtype=np.int32),
        )

    def _padded(self, batch: RaggedBatch, size: int) -> RaggedBatch:
        lacking = size - batch.num_requests

        def more(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            return np.concatenate([values, np.repeat(values[:1], lacking, axis=0)])

        tables = []
        for table in batch.block_tables:
            wide = np.zeros((len(table), self._columns), np.int32)
            columns = min(self._columns, table.shape[1])
            wide[:, :columns] = table[:, :columns]
            tables.append(more(wide))
        padded = RaggedBatch(
            token_ids=more(batch.token_ids),
            positions=more(batch.positions),
            query_start=np.arange(size + 1, dtype=np.int32),
            block_tables=tuple(tables),
            logit_rows=np.arange(size, dtype=np.int32),
        )
        if isinstance(batch, FollowingBatch):
            return padded.following(batch.drawing, more(batch.drawn_rows))
        return padded
