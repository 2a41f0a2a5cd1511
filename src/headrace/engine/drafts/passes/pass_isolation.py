"""Rows of a pass that fail do so alone, as rows of a step do (engine/isolation.py)."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from headrace.engine.drafts.passes.draft_row import DraftRow
from headrace.engine.sampling.sampler import SampledToken
from headrace.ops.interface import Ops

NOT_COMPUTED = SampledToken()
"""Of a row that memory was too short for: its request is drafted for again in the next step."""

Draws = Sequence[SampledToken | None]
"""What is drawn behind each row; None where nothing is."""


class PassIsolation:
    """The way in which a pass is computed that may fail as a whole."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self.num_failed = 0
        """Passes that raised."""

    def run(
        self, rows: Sequence[DraftRow], compute: Callable[[Sequence[DraftRow]], Draws]
    ) -> Draws:
        """What `compute` gives of the rows. Where it raises, each row is computed alone, and an
        error is the result of those for which it raises again. Where memory is short they are
        computed in halves, and one that does not fit alone is not computed."""
        try:
            return compute(rows)
        except Exception as error:  # of a model, a backend or one row: each row alone shows whose
            self.num_failed += 1
            if self._ops.fault_of(error) == "memory":
                # What the frames of the failed pass hold would be lacking again.
                traceback.clear_frames(error.__traceback__)
                self._ops.release_memory()
                if len(rows) == 1:
                    return [NOT_COMPUTED]
                half = len(rows) // 2
                return [*self.run(rows[:half], compute), *self.run(rows[half:], compute)]
            if len(rows) == 1:
                return [SampledToken(error=f"{type(error).__name__}: {error}")]
        return [self.run([row], compute)[0] for row in rows]
