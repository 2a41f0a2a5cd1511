"""Runs of a model whose shapes come again, repeated by the backend in place of being computed anew.

Each step of a stream without drafts has the shapes of the one before it, and so have most with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.ops.interface import Array, Ops, RunRecording
from headrace.ops.kv import RaggedBatch

MOST_TOKENS = 64
"""Of a run that is repeated: of more the operations take so long that what lies between them does
not matter, and memory for what they give would be kept."""
MOST_RECORDINGS = 128
"""Of a function. The one that was not repeated for the longest time goes; a recording is some ten
kilobytes for each layer."""
SEEN_BEFORE = 1
"""Runs of its shapes before one of several requests with several tokens is recorded, which takes
twice as long as to compute it: such shapes may never come again. Those of one request, or of a
token each, do."""

Shapes = tuple[int, bytes, bytes, tuple[tuple[int, ...], ...]]


class RepeatedRuns:
    """A function of a batch and arrays, which gives arrays. The first of these is right until the
    next run of any such function of the backend, the others for good."""

    def __init__(
        self,
        ops: Ops,
        run: Callable[[RaggedBatch, Sequence[Array], int], Sequence[Array]],
        *,
        repeats: bool = True,
    ) -> None:
        """run: as of `Ops.record_run`, with a number that says which of several it is. repeats:
        False computes every one anew."""
        self._ops = ops
        self._run = run
        self._repeats = repeats and ops.records_runs
        self.was_recorded = False
        """Whether the last run was, so that it took longer than others of its shapes."""
        self._known: dict[Shapes, RunRecording | int | None] = {}
        """Recordings, how often others were seen, None for those that cannot be recorded; the one
        that was met last is the last."""

    def __call__(
        self, batch: RaggedBatch, inputs: Sequence[Array] = (), which: int = 0
    ) -> Sequence[Array]:
        """What the function gives. Raises what it raises."""
        self.was_recorded = False
        if not self._repeats or batch.num_tokens > MOST_TOKENS:
            return self._run(batch, inputs, which)
        shapes = (
            which,
            batch.query_start.tobytes(),
            batch.logit_rows.tobytes(),
            tuple(each.shape for each in inputs),
        )
        known = self._known.pop(shapes, SEEN_BEFORE if _comes_again(batch) else 0)
        if isinstance(known, int) and known >= SEEN_BEFORE:
            outputs, known = self._ops.record_run(
                lambda batch, inputs: self._run(batch, inputs, which), batch, inputs
            )
            self._keep(shapes, known)
            self.was_recorded = True
            return outputs if known is None else self._given(outputs)
        if known is None or isinstance(known, int):
            self._keep(shapes, None if known is None else known + 1)
            return self._run(batch, inputs, which)
        try:
            outputs = self._given(known.repeat(batch, inputs))
        except ValueError:
            # As where a table of rotations has grown since; what is wrong with the batch itself is
            # raised again, and no repetition has written what a run would not write.
            return self._run(batch, inputs, which)
        self._known[shapes] = known
        return outputs

    def _keep(self, shapes: Shapes, known: RunRecording | int | None) -> None:
        self._known[shapes] = known
        if len(self._known) > MOST_RECORDINGS:
            del self._known[next(iter(self._known))]

    def _given(self, outputs: Sequence[Array]) -> Sequence[Array]:
        first, *others = outputs
        return [first, *(self._ops.stacked((each,)) for each in others)]


def _comes_again(batch: RaggedBatch) -> bool:
    """Whether there are few batches of such shapes: of one request, or of a token of each."""
    return batch.num_requests in {1, batch.num_tokens}
