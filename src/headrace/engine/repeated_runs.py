"""Runs of a model whose shapes come again, repeated by the backend in place of being computed anew.

Each step of a stream without drafts has the shapes of the one before it, and so have most with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array
from headrace.ops.recording import RunRecording

MOST_TOKENS = 64
"""Of a run that is repeated: of more the operations take so long that what lies between them does
not matter, and memory for what they give would be kept."""
MOST_RECORDINGS = 128
"""Of a function. The one that was not repeated for the longest time goes; a recording is half a
kilobyte for each layer."""
MOST_SEEN = 256
"""Shapes that were met once and are remembered."""

Shapes = tuple[int, int, int, bytes, tuple[tuple[int, ...], ...]]


class RepeatedRuns:
    """A function of a batch and arrays, which gives arrays. The first of these is right until the
    next run of any such function of the backend, the others for good.

    To record a run takes two to three times as long as to compute it. So shapes that may never come
    again, of prompts, are recorded when they do.
    """

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
        # What an asynchronous backend is given of a batch it has yet to fill in.
        self._repeats = repeats and ops.recording == "shapes" and not ops.is_asynchronous
        self.was_recorded = False
        """Whether the last run was, so that it took longer than others of its shapes."""
        self._known: dict[Shapes, RunRecording] = {}
        """The one that was repeated last is the last."""
        self._seen: set[Shapes] = set()
        self._refused: set[int] = set()
        """Which cannot be recorded: what they are made of is of the model, not of shapes."""
        self._of_starts: set[int] = set()
        """Which depend on where requests begin in a batch (RunRecording.depends_on_starts)."""

    def __call__(
        self, batch: RaggedBatch, inputs: Sequence[Array] = (), which: int = 0
    ) -> Sequence[Array]:
        """What the function gives. Raises what it raises."""
        self.was_recorded = False
        if not self._repeats or batch.num_tokens > MOST_TOKENS or which in self._refused:
            return self._run(batch, inputs, which)
        shapes = self._shapes(which, batch, inputs)
        recording = self._known.pop(shapes, None)
        if recording is None:
            if not (self._comes_again(which, batch) or self._was_seen(shapes)):
                return self._run(batch, inputs, which)
            return self._recorded(shapes, batch, inputs, which)
        try:
            outputs = self._given(recording.repeat(batch, inputs))
        except ValueError:
            # As where a table of rotations has grown since; what is wrong with the batch itself is
            # raised again, and no repetition has written what a run would not write.
            return self._run(batch, inputs, which)
        self._known[shapes] = recording
        return outputs

    def _shapes(self, which: int, batch: RaggedBatch, inputs: Sequence[Array]) -> Shapes:
        starts = b""
        if which in self._of_starts:
            starts = batch.query_start.tobytes() + batch.logit_rows.tobytes()
        counts = batch.num_tokens, len(batch.logit_rows)
        return (which, *counts, starts, tuple(array.shape for array in inputs))

    def _comes_again(self, which: int, batch: RaggedBatch) -> bool:
        """Whether there are few batches of such shapes: of tokens that have their logits each, and
        where starts matter, of a token of each request or of one request."""
        count = batch.num_tokens
        if len(batch.logit_rows) != count:
            return False
        return which not in self._of_starts or batch.num_requests in {1, count}

    def _was_seen(self, shapes: Shapes) -> bool:
        if shapes in self._seen:
            self._seen.remove(shapes)
            return True
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(shapes)
        return False

    def _recorded(
        self, shapes: Shapes, batch: RaggedBatch, inputs: Sequence[Array], which: int
    ) -> Sequence[Array]:
        outputs, recording = self._ops.record_run(
            lambda batch, inputs: self._run(batch, inputs, which), batch, inputs
        )
        self.was_recorded = True
        if recording is None:
            self._refused.add(which)
            return outputs
        if recording.depends_on_starts and which not in self._of_starts:
            self._of_starts.add(which)
            shapes = self._shapes(which, batch, inputs)
        self._known[shapes] = recording
        if len(self._known) > MOST_RECORDINGS:
            del self._known[next(iter(self._known))]
        return self._given(outputs)

    def _given(self, outputs: Sequence[Array]) -> Sequence[Array]:
        first, *others = outputs
        return [first, *(self._ops.stacked((array,)) for array in others)]
