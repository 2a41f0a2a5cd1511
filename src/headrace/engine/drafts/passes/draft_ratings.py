"""The probabilities that a maker gives its drafts, and rows of drafts that end by them.

A judge (draft_judge.py) is asked once for all drafts of a pass, as the rows that go on share the
next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np

from headrace.engine.drafts.passes.draft_generator import Judge, JudgedDraft, RatedDraft
from headrace.engine.drafts.passes.draft_row import DraftRow
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import SampledToken
from headrace.ops.interface import Ops
from headrace.ops.operands import Array


class DraftRatings:
    """The probabilities of a step's drafts, where somebody judges them."""

    def __init__(self, ops: Ops, num_tokens: int) -> None:
        """num_tokens: ids below it are drawn."""
        self._ops = ops
        self._num_tokens = num_tokens
        self._judge: Judge | None = None
        self._rated: dict[Request, list[RatedDraft]] = {}

    def begin(self, judge: Judge | None) -> None:
        """A step begins. judge: of its drafts; None where all of them are taken."""
        self._judge = judge
        self._rated.clear()

    def of(self, request: Request) -> Sequence[RatedDraft]:
        """Those of a request, with one that was left out."""
        return self._rated.get(request, ())

    def note(
        self, logits: Array, rows: Sequence[DraftRow], draws: Sequence[SampledToken | None]
    ) -> None:
        """A pass gave these rows their logits, f32[len(rows), vocab], of which this was drawn.
        Where nothing was drawn there may be no distribution, so that those rows have no rating."""
        if self._judge is None:
            return
        drawn = [
            (at, row, draw.token_id)
            for at, (row, draw) in enumerate(zip(rows, draws, strict=True))
            if draw is not None and draw.token_id is not None
        ]
        if not drawn:
            return
        if len(drawn) < len(rows):
            logits = self._ops.take_rows(logits, np.array([at for at, _, _ in drawn], np.int32))
        ids = np.array([token_id for _, _, token_id in drawn], np.int32)
        top = self._ops.top_logprobs(logits, ids, 1, self._num_tokens)
        for (_, row, token_id), logprob in zip(drawn, top.chosen.tolist(), strict=True):
            rated = self._rated.setdefault(row.request, [])
            # A row that is computed again, as another one failed, is rated again.
            rated[len(row.twin.drafts) :] = [RatedDraft(token_id, exp(logprob))]

    def heed(self, rows: Sequence[DraftRow]) -> None:
        """Have each of these rows, which a pass gave a draft, go on behind it, end there or before
        it."""
        if self._judge is None or not rows:
            return
        judged: list[JudgedDraft] = []
        for row in rows:
            place = len(row.twin.drafts) - 1
            probability = self._rated[row.request][place].probability
            judged.append(JudgedDraft(row.request, place, probability, row.count > 0))
        for row, verdict in zip(rows, self._judge(judged), strict=True):
            if verdict != "on":
                row.count = 0
            if verdict == "drop":
                row.twin.request.token_ids.pop()
