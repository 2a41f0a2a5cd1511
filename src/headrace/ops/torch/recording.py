"""Steps that are recorded once and repeated with other values in the same buffers.

Starting a kernel costs the host some microseconds, and a decode step of a small batch is hundreds
of kernels that take little more. A step of fixed shapes is recorded as a CUDA graph and started by
one call. All that differs between two such steps lies in one buffer of the batch (batch.py), which
is written before the graph runs; what a step computes must not depend on anything else of the host.

On a processor there are no graphs: `HostTape` notes each operation of PyTorch and runs it again on
the same tensors. It is what tests prove the rest with, and saves no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headrace.ops.kv import RaggedBatch
from headrace.ops.torch.batch import DeviceBatch


class NotRecordableError(RuntimeError):
    """A step depends on values of the host, or the host reads some of it on the way."""


Steps = Callable[[], Sequence[torch.Tensor]]
"""What is recorded, with its batch."""


class Tape(Protocol):
    """A recorder of one run."""

    def record(self, run: Steps) -> Sequence[torch.Tensor]:
        """Run and record; the results are where every repetition leaves its own."""

    def repeat(self) -> None:
        """Compute it again, from what lies in the same tensors now."""


class CudaTape:
    """A CUDA graph. pool: memory that graphs which never run at the same time share."""

    def __init__(self, pool: Any) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._pool = pool

    def record(self, run: Steps) -> Sequence[torch.Tensor]:
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, pool=self._pool):
            return run()

    def repeat(self) -> None:
        self._graph.replay()


class HostTape:
    """A list of operations on a processor."""

    def __init__(self) -> None:
        self._notes: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []

    def record(self, run: Steps) -> Sequence[torch.Tensor]:
        with _Noting(self._notes):
            return run()

    def repeat(self) -> None:
        for operation, args, named, results in self._notes:
            again = _tensors(operation(*args, **named))
            for known, new in zip(results, again, strict=True):
                if known.data_ptr() != new.data_ptr():
                    known.copy_(new)


_READ_BY_HOST = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item", "equal")
"""Operations whose result, or its size, the host has to wait for."""


class _Noting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Notes operations and their tensors. Raises NotRecordableError for what the host reads."""

    def __init__(self, notes: list[tuple[Any, Any, Any, list[torch.Tensor]]]) -> None:
        super().__init__()
        self._notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith("index") and len(args) > 1 else ()
        by_mask = isinstance(indices, list) and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices
        )
        if by_mask or any(name.startswith(each) for each in _READ_BY_HOST):
            raise NotRecordableError(f"the host reads what {name} gives")
        result = func(*args, **(kwargs or {}))
        self._notes.append((func, args, kwargs or {}, _tensors(result)))
        return result


def _tensors(result: Any) -> list[torch.Tensor]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, torch.Tensor)]


class RecordedStep:
    """A step of fixed shapes, which its batch's buffer tells from another."""

    depends_on_starts = True
    """As of RunRecording: a token of each request."""

    def __init__(self, batch: DeviceBatch, tape: Tape, results: Sequence[torch.Tensor]) -> None:
        self._batch = batch
        self._tape = tape
        self._results = results

    def repeat(
        self, batch: RaggedBatch, inputs: Sequence[torch.Tensor] = ()
    ) -> Sequence[torch.Tensor]:
        """The results for another batch of the same shapes; they are right until the next
        repetition. The batch's values are taken at their word. inputs: none, as when it was
        recorded. Raises ValueError for other shapes."""
        if inputs:
            raise ValueError(f"{len(inputs)} inputs of a step that has none but its batch")
        self._batch.refill(batch)
        self._tape.repeat()
        return self._results
