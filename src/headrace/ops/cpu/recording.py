"""Runs that are noted once and repeated by one call, on other values in the same memory.

A step of a small model is some fifty operations of a few microseconds, and each takes the
interpreter about as long again. So the operations of a run are noted as they are made
(native/tape.h), with their memory, and run again without it. The results are those that the
operations give one by one, for they are the same calls.

What a run computes must depend on the values of its batch and its inputs alone, where these lie in
the recording's own arrays. An operation may read

    what another one of the run made            in the arena
    token ids, positions, logit rows            arrays of the recording, filled for each repetition
    the inputs                                  likewise
    what outlives the run                       weights, tables of rotations
    rows that `take_rows` takes                 by contract of query_start and logit_rows alone

and a run that hands anything else to one, which was then made beside them, is not recorded. Where
rows that are taken are not the logit rows themselves but made of those or of query_start, the run
is repeated for the same values of both alone. Attention is given query_start with each batch.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.ops.cpu import _native
from headrace.ops.kv import KVCacheArrays, RaggedBatch

F32 = npt.NDArray[np.float32]
Empty = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]

_NOTED = frozenset({
    "activation", "add", "attention", "embedding", "experts", "gate_heads", "head_linear",
    "kv_write", "linear", "norm", "norm_columns", "place", "rope", "route", "scale_rows", "softcap",
    "spread", "take_rows",
})  # fmt: skip
_OF_STARTS = {("take_rows", 1), ("attention", 7)}
"""Operations and places of their arguments: rows, and masks, are made of where requests begin."""
MOST_ROWS = 64
"""Of runs that are usually recorded (engine/repeated_runs.py)."""
_STEP, _STAGGER = 5 * 64, 4096
"""Bytes by which arrays are apart within a page, in lines of a cache, and bytes of a page."""


class NotRecordableError(Exception):
    """A run depends on something beside its batch and inputs."""


class Arena:
    """Memory of what runs compute on the way, used again as soon as an array has gone.

    All recordings of a backend share it, since one runs at a time: what one leaves is right until
    the next one runs. Recordings point into it, so that nothing is given back; what is had at once
    is enough for MOST_ROWS rows, of which the pages that no run needs are never touched.
    """

    def __init__(self) -> None:
        self._storages: list[mmap.mmap] = []
        self._free: list[mmap.mmap] = []

    @property
    def capacity_bytes(self) -> int:
        """Of all storages, touched or not."""
        return sum(map(len, self._storages))

    def begin(self) -> None:
        """A run begins: all of it is free."""
        self._free = sorted(self._storages, key=len)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """As np.empty."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        storage = next((each for each in self._free if len(each) >= size + _STAGGER), None)
        if storage is None:
            rows = shape[0] if shape else 1
            most = size * MOST_ROWS // rows if 0 < rows < MOST_ROWS else size
            # Private: a forked process has memory of its own.
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            storage = mmap.mmap(-1, most + _STAGGER, flags=flags)
            self._storages.append(storage)
        else:
            self._free.remove(storage)
        # Storages begin at pages: arrays at the same place in each would share sets of the caches.
        start = self._storages.index(storage) * _STEP % _STAGGER
        # The array is the owner of its slices: of one whose base is an array it would not be.
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, storage, start)
        weakref.finalize(array, self._give_back, storage, self._free)
        return array

    def _give_back(self, storage: mmap.mmap, free: list[mmap.mmap]) -> None:
        if free is self._free:  # of the run that is noted now
            free.append(storage)
            free.sort(key=len)

    def owns(self, array: npt.NDArray[Any]) -> bool:
        """Whether an array, or what it is a part of, lies here."""
        while isinstance(array.base, np.ndarray):
            array = array.base
        return any(array.base is storage for storage in self._storages)


class Notes:
    """The native backend of a run that is noted: it notes what the run's thread calls, and what
    these calls read."""

    def __init__(self, native: _native.Backend, arena: Arena, own: Sequence[Any]) -> None:
        """own: arrays of the recording."""
        self._native = native
        self._arena = arena
        self._own = own
        self._thread = threading.get_ident()
        self.kept: list[Any] = list(own)
        """All that the notes point to and that is not in the arena."""
        self._foreign: list[npt.NDArray[Any]] = []
        self._readers: list[str] = []
        """What reads each of these."""
        self.bound: _native.BoundBatch | None = None
        self.depends_on_starts = False
        """As of RunRecording."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._native, name)
        if threading.get_ident() != self._thread:
            return method
        if name not in _NOTED:
            raise NotRecordableError(f"{name} is called on the way")

        def noted(*args: Any) -> None:
            for at, arg in enumerate(args):
                self._note(name, at, arg)
            method(*args)

        return noted

    def _note(self, name: str, at: int, arg: Any) -> None:
        if isinstance(arg, _native.BoundBatch) and arg is not self.bound:
            raise NotRecordableError("a batch was made on the way")
        if not isinstance(arg, np.ndarray):
            if arg is not None:
                self.kept.append(arg)
            return
        if self._arena.owns(arg):
            return
        self.kept.append(arg)
        if any(arg is own or arg.base is own for own in self._own):
            return
        if (name, at) in _OF_STARTS:
            self.depends_on_starts = True
            if name == "take_rows":
                return
        self._foreign.append(arg)
        self._readers.append(name)

    def check(self) -> None:
        """Raises NotRecordableError where an array that was read is gone with the run: it was made
        of something on the way."""
        noted = Counter(map(id, chain(self.kept, self._foreign)))
        # References of a name and of a call: newer interpreters count one of them.
        unheld = object()
        of_here = sys.getrefcount(unheld)
        while self._foreign:
            array, reader = self._foreign.pop(), self._readers.pop()
            # References of both lists, which have lost one, and of this function.
            held = noted[id(array)] - 1 + of_here
            noted[id(array)] -= 1
            if sys.getrefcount(array) <= held:
                raise NotRecordableError(f"an array that {reader} reads was made on the way")


class Recording:
    """A run that can be repeated, once it has ended."""

    def __init__(
        self, native: _native.Backend, arena: Arena, batch: RaggedBatch, inputs: Sequence[F32]
    ) -> None:
        """batch, inputs: those of the run, of which it has copies."""
        own = self.batch = RaggedBatch(
            batch.token_ids.copy(),
            batch.positions.copy(),
            batch.query_start.copy(),
            batch.block_tables,
            batch.logit_rows.copy(),
        )
        self.inputs = tuple(each.copy() for each in inputs)
        # Without query_start, which has another length where there are other requests.
        arrays = (own.token_ids, own.positions, own.logit_rows, *self.inputs)
        self.tape = _native.Tape()
        self.notes = Notes(native, arena, arrays)
        self._arena = arena
        self._outputs: Sequence[F32] = ()

    def bind(self, batch: RaggedBatch, kv: KVCacheArrays) -> _native.BoundBatch:
        """The batch of the run, for the operations that are noted."""
        if batch is not self.batch or self.notes.bound is not None:
            raise NotRecordableError("a batch was made on the way")
        bound = _native.BoundBatch(
            kv.arrays, batch.positions, batch.query_start, batch.block_tables
        )
        self.notes.bound = bound
        self.notes.kept += [bound, kv.arrays]
        return bound

    def end(self, outputs: Sequence[F32]) -> None:
        """The run has given these. Raises NotRecordableError where it cannot be repeated."""
        if not all(map(self._arena.owns, outputs)):
            raise NotRecordableError("a result was made on the way")
        self.notes.check()
        self._outputs = outputs

    @property
    def depends_on_starts(self) -> bool:
        """As of RunRecording."""
        return self.notes.depends_on_starts

    def repeat(self, batch: RaggedBatch, inputs: Sequence[F32]) -> Sequence[F32]:
        """What the run gives for another batch of the same shapes; it is right until the next
        repetition of any. ValueError as of the operations."""
        own = self.batch
        if _sizes(batch, inputs) != _sizes(own, self.inputs):
            raise ValueError(
                f"a run of {_sizes(batch, inputs)} (tokens, logit rows, inputs) does not repeat "
                f"one of {_sizes(own, self.inputs)}"
            )
        np.copyto(own.token_ids, batch.token_ids)
        np.copyto(own.positions, batch.positions)
        np.copyto(own.logit_rows, batch.logit_rows)
        for to, values in zip(self.inputs, inputs, strict=True):
            np.copyto(to, values)
        if self.notes.bound is not None:
            self.notes.bound.refill(batch.positions, batch.query_start, batch.block_tables)
        self.tape.run()
        return self._outputs


def _sizes(batch: RaggedBatch, inputs: Sequence[F32]) -> tuple[int, int, int]:
    return batch.num_tokens, len(batch.logit_rows), len(inputs)


def of_this_thread(own: Empty, others: Empty) -> Empty:
    """Memory for the thread that calls this, and for others."""
    thread = threading.get_ident()
    return lambda shape, dtype: (own if threading.get_ident() == thread else others)(shape, dtype)
