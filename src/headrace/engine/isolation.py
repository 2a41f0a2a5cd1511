"""Rows that fail do so alone: what spoils a batch is found by computing each of its rows by itself.

Running a row again writes the same K and V to the same places. A fault of the batch, which no row
shows alone, costs speed only: `failed_steps` and the log are what reports it. Where memory was too
little nobody fails: the rows are computed in halves, and one that does not fit alone is put off.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence

from headrace.engine.drafts.passes.features import Features
from headrace.engine.kv.copies import Copy
from headrace.engine.model import Model
from headrace.engine.recorded_steps import RecordedSteps
from headrace.engine.runner import PUT_OFF, RowResult, Runner, StepHandle
from headrace.engine.sampling.sampler import SampledToken, Sampler
from headrace.engine.scheduling.plan import Row
from headrace.engine.step_memory import StepMemory
from headrace.errors import DeviceLostError
from headrace.models.layer_cache import CacheGroup
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays

logger = logging.getLogger(__name__)


class IsolatingRunner(Runner):
    """A Runner that never raises for what is wrong with rows: their results are errors then."""

    def __init__(
        self,
        memory: StepMemory,
        model: Model,
        groups: Sequence[CacheGroup],
        kv: KVCacheArrays,
        sampler: Sampler,
        ops: Ops,
        features: Features | None = None,
        recorded: RecordedSteps | None = None,
        *,
        repeats: bool = True,
    ) -> None:
        """memory: of how many tokens are computed together."""
        super().__init__(model, groups, kv, sampler, ops, features, recorded, repeats=repeats)
        self.failed_steps = 0
        """Steps that raised as a whole, but for those that found too little memory."""
        self._memory = memory

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy blocks, each alone where memory is too little for several at a time."""
        if not copies:
            return
        error = self._raised_by(lambda: super(IsolatingRunner, self).copy(copies))
        if error is None:
            return
        if self._ops.fault_of(error) != "memory":
            raise error
        self._note_short(error, len(copies))
        for pair in copies:
            super().copy([pair])

    def begin(self, rows: Sequence[Row], after: StepHandle | None = None) -> StepHandle | None:
        """Begin a step; None where it is not begun, for `run` to say why. Raises
        DeviceLostError."""
        if self._memory.limit is not None:
            return None
        begun: list[StepHandle | None] = []
        error = self._raised_by(
            lambda: begun.append(super(IsolatingRunner, self).begin(rows, after))
        )
        return begun[0] if error is None else None

    def read_or_none(self, begun: StepHandle) -> list[RowResult] | None:
        """What a step gave; None where something went wrong on the way. Raises DeviceLostError."""
        results: list[RowResult] = []
        error = self._raised_by(lambda: results.extend(super(IsolatingRunner, self).read(begun)))
        return results if error is None else None

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows together, or in parts where memory was short; if that raises, each
        alone. Raises DeviceLostError where the device computes nothing any more.
        """
        return [result for part in self._memory.parts(rows) for result in self._run_part(part)]

    def _run_part(self, rows: Sequence[Row]) -> list[RowResult]:
        results: list[RowResult] = []
        error = self._raised_by(lambda: results.extend(super(IsolatingRunner, self).run(rows)))
        if error is None:
            return results
        if self._ops.fault_of(error) == "memory":
            return self._with_less(rows, error)
        self.failed_steps += 1
        if len(rows) == 1:
            return [_failed(rows[0], error)]
        if self.failed_steps.bit_count() == 1:
            # The 1st, 2nd, 4th, 8th time: one that fails in every step must not fill the disk.
            logger.error(
                "a step of %d requests failed, now %d steps in all; running each alone",
                len(rows), self.failed_steps, exc_info=error,
            )  # fmt: skip
        return [self._alone(row) for row in rows]

    def _raised_by(self, work: Callable[[], object]) -> Exception | None:
        """The error that `work` raised, None where it did not. Raises DeviceLostError."""
        try:
            work()
        except Exception as error:  # of a model, a backend or one row: each row alone shows whose
            if self._ops.fault_of(error) == "lost":
                raise DeviceLostError(
                    f"the device {self._ops.level} is lost, nothing can be computed there any more "
                    f"({type(error).__name__}: {_first_line(error)})"
                ) from error
            return error
        return None

    def _with_less(self, rows: Sequence[Row], error: Exception) -> list[RowResult]:
        """The rows in two halves, one after the other; a single one is put off."""
        self._note_short(error, sum(row.num_tokens for row in rows))
        if len(rows) == 1:
            return [PUT_OFF]
        half = len(rows) // 2
        return self._run_part(rows[:half]) + self._run_part(rows[half:])

    def _note_short(self, error: Exception, num_tokens: int) -> None:
        # What the frames of the failed step hold would be lacking again.
        traceback.clear_frames(error.__traceback__)
        self._ops.release_memory()
        self._memory.note_short(num_tokens)
        if self._memory.times_short.bit_count() == 1:
            logger.warning(
                "memory was too little for %d tokens at a time (%s), now %d times in all; going on "
                "with half of them",
                num_tokens, _first_line(error), self._memory.times_short,
            )  # fmt: skip

    def _alone(self, row: Row) -> RowResult:
        results: list[RowResult] = []
        error = self._raised_by(lambda: results.extend(super(IsolatingRunner, self).run([row])))
        if error is None:
            return results[0]
        if self._ops.fault_of(error) == "memory":
            return self._with_less([row], error)[0]
        return _failed(row, error)


def _failed(row: Row, error: Exception) -> RowResult:
    logger.error("request %s failed", row.request.request_id, exc_info=error)
    return RowResult([SampledToken(error=f"{type(error).__name__} in the engine: {error}")])


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
