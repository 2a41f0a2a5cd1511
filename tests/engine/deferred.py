"""A backend that computes beside the host, as late as a device may: operations are done in their
order, and none before the host waits for it or for what comes after it.

It is made of a backend with NumPy arrays and its model. What an operation is handed is copied then,
as on the way to a device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.ops.kv import FollowingBatch, KVCacheArrays, RaggedBatch
from headrace.ops.sampling_rows import (
    DrawHandle,
    DrawResult,
    LogitsEdit,
    LogprobQuery,
    SamplingRows,
    UnusableLogitsError,
)


class Queue:
    """Work in its order, none of which is done before somebody waits for it or for later work."""

    def __init__(self) -> None:
        self._waiting: deque[Later] = deque()
        self.num_ahead = 0
        """Steps that were begun with ids that nobody had waited for."""

    def put(self, work: Callable[[], Any]) -> Later:
        """Have something done at its time."""
        later = Later(work, self)
        self._waiting.append(later)
        return later

    def do(self, last: Later) -> None:
        """All up to `last`."""
        while not last.is_done:
            self._waiting.popleft().do()


class Later:
    """A value that work gives. What the work raises, whoever wants the value gets."""

    def __init__(self, work: Callable[[], Any], queue: Queue) -> None:
        self._work = work
        self._queue = queue
        self._value: Any = None
        self._error: Exception | None = None
        self.is_done = False

    def do(self) -> None:
        self.is_done = True
        try:
            self._value = self._work()
        except Exception as error:
            self._error = error

    def value(self) -> Any:
        """Within other work, where all before it is done."""
        assert self.is_done, "used before its turn"
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self) -> Any:
        """On the host."""
        self._queue.do(self)
        return self.value()


class DeferredDraw:
    """A draw of the thread."""

    def __init__(self, drawn: Later) -> None:
        self.drawn = drawn
        self.was_read = False

    def read(self) -> DrawResult:
        self.was_read = True
        found: DrawResult = self.drawn.wait()
        return found


class DeferredModel:
    """A model whose forward pass is put into a queue."""

    def __init__(self, model: Any, queue: Queue) -> None:
        self._model = model
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> Later:
        values = [getattr(batch, each.name) for each in fields(RaggedBatch)]
        copied = RaggedBatch(*(
            tuple(map(np.copy, each)) if isinstance(each, tuple) else each.copy() for each in values
        ))  # fmt: skip
        if not isinstance(batch, FollowingBatch):
            return self._queue.put(lambda: self._model.forward(copied, kv))
        drawing: Any = batch.drawing
        rows = batch.drawn_rows.copy()
        self._queue.num_ahead += not drawing.was_read

        def following() -> Any:
            ids = drawing.drawn.value().token_ids
            known = np.where(rows < 0, copied.token_ids, ids[rows])
            return self._model.forward(replace(copied, token_ids=known.astype(np.int32)), kv)

        return self._queue.put(following)


class DeferredOps:
    """The operations that an engine calls itself, over those of `ops`."""

    is_asynchronous = True
    recording = "none"
    """Whatever `ops` does: what it is handed would be there when it is recorded."""

    def __init__(self, ops: Any, queue: Queue) -> None:
        self._ops = ops
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def wait_for(self, x: Later) -> None:
        x.wait()

    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        copied = pairs.copy()
        self._queue.put(lambda: self._ops.kv_copy(kv, copied))

    def take_rows(self, x: Later, rows: npt.NDArray[np.int32]) -> Later:
        copied = rows.copy()
        return self._queue.put(lambda: self._ops.take_rows(x.value(), copied))

    def adjust(self, logits: Later, adjustments: Sequence[LogitsEdit]) -> None:
        changes = list(adjustments)
        self._queue.put(lambda: self._ops.adjust(logits.value(), changes))

    def begin_draw(
        self,
        logits: Later,
        rows: SamplingRows,
        num_tokens: int,
        wanted: LogprobQuery | None = None,
    ) -> DrawHandle:
        return DeferredDraw(
            self._queue.put(lambda: self._drawn(logits.value(), rows, num_tokens, wanted))
        )

    def sample(self, logits: Later, *others: Any) -> Any:
        return self._queue.put(lambda: self._ops.sample(logits.value(), *others)).wait()

    def top_logprobs(self, logits: Later, *others: Any) -> Any:
        return self._queue.put(lambda: self._ops.top_logprobs(logits.value(), *others)).wait()

    def _drawn(
        self, logits: Any, rows: SamplingRows, num_tokens: int, wanted: LogprobQuery | None
    ) -> DrawResult:
        ids, unusable = np.zeros(len(logits), np.int32), {}
        for row in range(len(logits)):
            own = SamplingRows(
                *(getattr(rows, each.name)[row : row + 1] for each in fields(SamplingRows))
            )
            try:
                only = self._ops.take_rows(logits, np.array([row], np.int32))
                ids[row] = self._ops.sample(only, own, num_tokens)[0]
            except UnusableLogitsError as error:
                unusable[row] = str(error).partition("logits ")[2]
        if wanted is None:
            return DrawResult(ids, unusable)
        chosen = ids[wanted.rows]
        return DrawResult(
            ids,
            unusable,
            self._ops.top_logprobs(wanted.logits.value(), chosen, wanted.k, num_tokens),
        )


def deferred(model: Any, ops: Any) -> tuple[Any, Any, Queue]:
    """The model and the backend, over one queue."""
    queue = Queue()
    return DeferredModel(model, queue), DeferredOps(ops, queue), queue
