"""A small model of the same tokens that goes ahead of the target."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.passes.draft_row import DraftRow
from headrace.engine.model import Model
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array


class DraftModelChain(DraftChain[Model]):
    """The passes of a smaller model, one for each draft."""

    name = "draft_model"

    def _end(self, rows: Sequence[DraftRow]) -> None:
        del rows  # what was written of a draft that comes is right

    def _drawn(self, rows: Sequence[DraftRow]) -> None:
        del rows  # nothing but K and V is carried on

    def _compute(self, batch: RaggedBatch, inputs: Sequence[Array], which: int) -> Sequence[Array]:
        del inputs, which
        return [self.maker.forward(batch, self._arrays)]

    def _forward(self, rows: Sequence[DraftRow], batch: RaggedBatch) -> Array:
        del rows
        return self._runs(batch)[0]
