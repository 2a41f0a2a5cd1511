"""Runs that a backend notes while it computes them, to repeat them with one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array

Run = Callable[[RaggedBatch, Sequence[Array]], Sequence[Array]]
"""A function of a batch and arrays, of operations of one backend."""


class RunRecording(Protocol):
    """A run that a backend can repeat with one call; see `Ops.record_run`."""

    @property
    def depends_on_starts(self) -> bool:
        """Whether it repeats only batches whose query_start and logit_rows have the same values,
        and not all that have as many tokens and logit rows."""

    def repeat(self, batch: RaggedBatch, inputs: Sequence[Array]) -> Sequence[Array]:
        """What the run gives for another such batch, with block tables of any width and inputs of
        the same shapes. The arrays are the backend's, and right until it repeats or records another
        run. ValueError as of the operations."""


class RecordingOps:
    """The part of a backend that notes runs; it notes none where it does not say otherwise."""

    @property
    def recording(self) -> Literal["none", "sizes", "shapes"]:
        """What `record_run` is for. sizes: batches of a token of each request, padded to numbers of
        them that are recorded before the first one comes, since to record one is dear; shapes:
        batches as they come, each at the price of two or three runs."""
        return "none"

    def record_run(
        self, run: Run, batch: RaggedBatch, inputs: Sequence[Array] = ()
    ) -> tuple[Sequence[Array], RunRecording | None]:
        """Run, and note on the way what was computed, to be repeated at less expense to the host;
        None where the backend does not, or cannot of this run. The arrays that are given with a
        recording are as `RunRecording.repeat` has them.

        run: each of its operations reads what another one made, the batch, the inputs, or what
        outlives the run; what `take_rows` takes is of query_start and logit_rows alone. A run that
        is seen to do otherwise is computed again, without.
        """
        return run(batch, inputs), None
