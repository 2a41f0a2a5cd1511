"""Rows that fail do so alone: what spoils a batch is found by computing each of its rows by itself.

Running a row again writes the same K and V to the same places. A fault of the batch, which no row
shows alone, costs speed only: `failed_steps` and the log are what reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.engine.drafts.passes.features import Features
from headrace.engine.model import Model
from headrace.engine.runner import RowResult, Runner
from headrace.engine.sampling.sampler import SampledToken, Sampler
from headrace.engine.scheduling.plan import Row
from headrace.models.layer_cache import CacheGroup
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays

logger = logging.getLogger(__name__)


class IsolatingRunner(Runner):
    """A Runner that never raises for what is wrong with rows: their results are errors then."""

    def __init__(
        self,
        model: Model,
        groups: Sequence[CacheGroup],
        kv: KVCacheArrays,
        sampler: Sampler,
        ops: Ops,
        features: Features | None = None,
    ) -> None:
        super().__init__(model, groups, kv, sampler, ops, features)
        self.failed_steps = 0
        """Steps that raised as a whole."""

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows together; if that raises, each alone."""
        try:
            return super().run(rows)
        except Exception as error:  # of a model, a backend or one row: each row alone shows whose
            self.failed_steps += 1
            if len(rows) == 1:
                return [_failed(rows[0], error)]
            if self.failed_steps.bit_count() == 1:
                # The 1st, 2nd, 4th, 8th time: one that fails in every step must not fill the disk.
                logger.exception(
                    "a step of %d requests failed, now %d steps in all; running each alone",
                    len(rows),
                    self.failed_steps,
                )
        return [self._alone(row) for row in rows]

    def _alone(self, row: Row) -> RowResult:
        try:
            (result,) = super().run([row])
        except Exception as error:
            return _failed(row, error)
        return result


def _failed(row: Row, error: Exception) -> RowResult:
    logger.error("request %s failed", row.request.request_id, exc_info=error)
    return RowResult([SampledToken(error=f"{type(error).__name__} in the engine: {error}")])
