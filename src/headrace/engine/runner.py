"""From a plan to tokens: the ragged batch, the model's forward, the sampler.

This runs every step, so arrays are built by whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.drafts.passes.features import Features
from headrace.engine.drafts.proposer import NO_DRAFTS
from headrace.engine.grammars.constraint import Look
from headrace.engine.grammars.masks import Looks, MaskMaker
from headrace.engine.kv.block_tables import BlockTables
from headrace.engine.kv.copies import Copy, apart
from headrace.engine.messages import TokenLogprob
from headrace.engine.model import Model
from headrace.engine.recorded_steps import RecordedSteps
from headrace.engine.repeated_runs import RepeatedRuns
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import (
    NOTHING_DRAWN,
    DrawPosition,
    SampledToken,
    SampleHandle,
    Sampler,
)
from headrace.engine.scheduling.plan import Row, RowTokens
from headrace.models.layer_cache import CacheGroup
from headrace.ops.interface import Ops
from headrace.ops.kv import FollowingBatch, KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array
from headrace.ops.sampling_rows import UnusableLogitsError


class RowResult(NamedTuple):
    """The result of a row: the tokens it gives, and the log probabilities of the prompt's tokens
    after `Row.scored`."""

    tokens: Sequence[SampledToken] = ()
    """In order; what says that nothing follows, or why not, is the last. Empty where none is due.
    """
    scores: Sequence[TokenLogprob] = ()
    put_off: bool = False
    """Whether nothing of it was computed, for want of memory."""

    @property
    def given(self) -> RowTokens:
        """Its tokens as the scheduler enters them."""
        if self.put_off:
            return RowTokens(put_off=True)
        token_ids = [each.token_id for each in self.tokens if each.token_id is not None]
        if len(token_ids) == len(self.tokens):
            return RowTokens(token_ids)
        return RowTokens(token_ids, "error" if self.tokens[-1].error is not None else "stop")


class StepHandle(NamedTuple):
    """A step that a device computes, or has computed."""

    rows: Sequence[Row]
    draws: SampleHandle
    """Of the rows that sample, perhaps of none; who reads it waits for the step."""
    places: Mapping[Request, int]
    """The rows of `draws`, by the request that each is of."""


_WITH_FEATURES = 1
"""Of the two runs of a model."""
UNKNOWN = 0
"""In place of a token that a step in flight draws: an id that every vocabulary has."""
NOTHING_YET = RowResult()
PUT_OFF = RowResult(put_off=True)


class Runner:
    """A model with its KV cache and sampler. Keeps nothing of a request but its table's row.

    groups: of the KV cache's layers, in the order of its tables.
    """

    def __init__(
        self,
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
        """features: kept for a draft head, where there is one. recorded: steps that the backend
        repeats, padded to sizes; None where all are computed anew. repeats: whether it may repeat
        others as they come."""
        self._recorded = recorded
        self._runs = RepeatedRuns(ops, self._compute, repeats=repeats)
        self._features = features
        self._model = model
        self._kv = kv
        self._sampler = sampler
        self._ops = ops
        self._masks = MaskMaker()
        self._tables = BlockTables(groups)

    @property
    def was_recorded(self) -> bool:
        """Whether the last step was recorded, so that it took longer than others of its shapes."""
        return self._runs.was_recorded

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy blocks, one after another, before a step whose plan orders it."""
        for pairs in apart(copies):
            self._ops.kv_copy(self._kv, np.array(pairs, np.int32))

    def populate(self, num_blocks: int, *, wait: bool = False) -> None:
        """Have memory of the blocks below this number ready before it is written."""
        self._ops.kv_populate(self._kv, num_blocks, wait=wait)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the tokens of `rows`, and what those that sample give; one entry per row."""
        masks = self._masks.begin(rows)
        try:
            logits = self._forward(rows)
        finally:
            looks: Looks = {} if masks is None else masks()
        places = [place for at, row in enumerate(rows) for place in _places(row, looks.get(at, ()))]
        if not places:
            # Whoever reads a draw waits for the step; nobody else would hear of its late errors.
            self._ops.wait_for(logits)
        if not all(map(_is_plain, rows)):
            return self._take_apart(rows, logits, places)
        if not places:
            return [NOTHING_YET] * len(rows)
        drawn = iter(self._sampler.sample(logits, places))
        return [RowResult([next(drawn)]) if row.samples else NOTHING_YET for row in rows]

    def begin(self, rows: Sequence[Row], after: StepHandle | None = None) -> StepHandle | None:
        """Begin to compute `rows` on a backend that is asynchronous; `read` waits for it. None, and
        nothing is begun, where the rows, or those of a step that follows, need results first.

        after: the step begun before, whose tokens the host need not know yet.
        """
        if not all(map(_can_fly, rows)):
            return None
        batch = self._batch(rows)
        if after is not None and any(row.request.num_due for row in rows):
            batch = _following(batch, rows, after)
        logits = self._logits(batch)
        sampling = [row.request for row in rows if row.samples]
        unknown = [(UNKNOWN,) * request.num_due for request in sampling]
        draws = self._sampler.begin(logits, list(map(DrawPosition, sampling, unknown)))
        return StepHandle(rows, draws, {request: at for at, request in enumerate(sampling)})

    def read(self, begun: StepHandle) -> list[RowResult]:
        """What a step gave, once the one before it has been read and entered."""
        drawn = iter(self._sampler.read(begun.draws))
        return [RowResult([next(drawn)]) if row.samples else NOTHING_YET for row in begun.rows]

    def _logits(self, batch: RaggedBatch) -> Array:
        logits = None if self._recorded is None else self._recorded.forward(batch)
        return self._runs(batch)[0] if logits is None else logits

    def _forward(self, rows: Sequence[Row]) -> Array:
        batch = self._batch(rows)
        kept = self._features
        if kept is None or not kept.wants_any(rows):
            return self._logits(batch)
        logits, features = self._runs(batch, which=_WITH_FEATURES)
        kept.note(rows, batch.query_start, features)
        return logits

    def _compute(self, batch: RaggedBatch, inputs: Sequence[Array], which: int) -> Sequence[Array]:
        del inputs
        if which != _WITH_FEATURES or self._features is None:
            return [self._model.forward(batch, self._kv)]
        return self._model.forward_with_features(batch, self._kv, self._features.layers)

    def _take_apart(
        self, rows: Sequence[Row], logits: Array, places: Sequence[DrawPosition]
    ) -> list[RowResult]:
        """Each row's logits are those of its scored positions, then of the tokens that come in any
        case, then those from which tokens are drawn."""
        counts = [row.num_drawn for row in rows]
        others: list[RowResult] = []
        at: list[int] = []
        end = 0
        for row, count in zip(rows, counts, strict=True):
            others.append(NOTHING_YET if _is_plain(row) else self._read(row, logits, end))
            end += row.num_logits
            at += range(end - count, end)
        draws: list[SampledToken] = []
        if places:
            own = logits if len(at) == end else self._ops.take_rows(logits, np.array(at, np.int32))
            draws = self._sampler.sample(own, places)
        drawn = iter(draws)
        results = []
        for row, count, (tokens, scores, _) in zip(rows, counts, others, strict=True):
            own_draws = list(islice(drawn, count))
            if not tokens:
                tokens = _accepted(row, own_draws)
            elif tokens[-1].error is None:
                tokens = [*tokens, *_accepted(row, own_draws)]
            results.append(RowResult(tokens, scores))
        return results

    def _read(self, row: Row, logits: Array, start: int) -> RowResult:
        """What a row has without drawing: scores of its prompt, tokens that are certain."""
        scored, params = row.scored, row.request.params
        scores: Sequence[TokenLogprob] = ()
        if scored:
            own = self._ops.take_rows(logits, _span(start, len(scored)))
            following = row.request.token_ids[scored.start + 1 : scored.stop + 1]
            try:
                scores = self._sampler.score(own, following, params.prompt_logprobs or 0)
            except UnusableLogitsError as error:
                reason = f"the prompt has no log probabilities: {error}"
                return RowResult([SampledToken(error=reason)])
        if not row.drafts.are_certain:
            return RowResult((), scores)
        if not row.num_rated:
            return RowResult(_certain(row).tokens, scores)
        own = self._ops.take_rows(logits, _span(start + len(scored), row.num_rated))
        ids = _certain_ids(row)
        return RowResult(self._sampler.rate(own, ids, params.logprobs or 0), scores)

    def _batch(self, rows: Sequence[Row]) -> RaggedBatch:
        if len(rows) == 1 and not rows[0].scored and not rows[0].request.num_due:
            return self._batch_of_one(rows[0])
        starts = np.array([row.start for row in rows], np.int32)
        counts = np.array([row.num_tokens for row in rows], np.int32)
        query_start = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=query_start[1:])
        token_ids: list[int] = []
        for request, start, count, _, _, drafts in rows:
            if count == 1:
                own = request.token_ids
                token_ids.append(own[start] if start < len(own) else UNKNOWN)
            else:
                token_ids += request.token_ids[start : start + count]
                token_ids += drafts.token_ids
        positions = np.arange(len(token_ids), dtype=np.int32)
        positions += np.repeat(starts - query_start[:-1], counts)
        if all(map(_is_plain, rows)):
            samples = np.array([row.samples for row in rows], np.bool_)
            logit_rows = query_start[1:][samples] - np.int32(1)
        else:
            logit_rows = _logit_rows(rows, query_start)
        return RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            query_start=query_start,
            block_tables=self._tables.of([row.request for row in rows]),
            logit_rows=logit_rows,
        )

    def _batch_of_one(self, row: Row) -> RaggedBatch:
        """The same of one row whose prompt is not scored, as a single stream has in each step."""
        request, start, count = row.request, row.start, row.num_tokens
        token_ids = request.token_ids[start : start + count]
        if row.drafts is not NO_DRAFTS:
            token_ids += row.drafts.token_ids
        first = count - row.num_rated - row.num_drawn
        return RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=np.arange(start, start + count, dtype=np.int32),
            query_start=np.array((0, count), np.int32),
            block_tables=self._tables.of([request]),
            logit_rows=np.arange(first, count, dtype=np.int32),
        )


def _can_fly(row: Row) -> bool:
    """Whether neither it nor the next row of its request needs to know a token that it gives."""
    return _is_plain(row) and not (row.samples and row.request.draws_from_text)


def _following(batch: RaggedBatch, rows: Sequence[Row], after: StepHandle) -> FollowingBatch:
    """The batch, with the tokens that its requests lack of what the step before draws."""
    drawn_rows = np.full(batch.num_tokens, -1, np.int32)
    for row, at in zip(rows, batch.query_start.tolist(), strict=False):
        if row.request.num_due:
            drawn_rows[at] = after.places[row.request]
    return batch.following(after.draws.drawing, drawn_rows)


def _logit_rows(rows: Sequence[Row], query_start: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Of each row, its scored positions, and those after which it gives tokens that are drawn or
    whose log probability is wanted."""
    at: list[int] = []
    for row, first in zip(rows, query_start.tolist(), strict=False):
        if row.scored:
            before = first - row.start
            at += range(before + row.scored.start, before + row.scored.stop)
        end = first + row.num_tokens
        at += range(end - row.num_rated - row.num_drawn, end)
    return np.array(at, np.int32)


def _span(start: int, count: int) -> npt.NDArray[np.int32]:
    return np.arange(start, start + count, dtype=np.int32)


def _is_plain(row: Row) -> bool:
    """Whether it wants no logits but those of its last token, if these."""
    return row.drafts is NO_DRAFTS and not row.scored


def _places(row: Row, looks: Sequence[Look]) -> list[DrawPosition]:
    """Where a row draws; looks: what its grammar allows at each of them, where it has one."""
    request, drafts = row.request, row.drafts
    if drafts is NO_DRAFTS:
        if not row.samples:
            return []
        return [DrawPosition(request, (), looks[0] if looks else None)]
    read = [len(drafts.token_ids)] if drafts.are_certain else range(row.num_drawn)
    return [
        DrawPosition(request, drafts.token_ids[:count], looks[index] if looks else None)
        for index, count in enumerate(read[: row.num_drawn])
    ]


def _certain_ids(row: Row) -> list[int]:
    following = row.drafts.following
    return [*row.drafts.token_ids, *([] if following is None else [following])]


def _certain(row: Row) -> RowResult:
    return RowResult([SampledToken(token_id) for token_id in _certain_ids(row)])


def _accepted(row: Row, draws: Sequence[SampledToken]) -> Sequence[SampledToken]:
    """The tokens drawn at the places of a row, up to the first that is not the draft there."""
    if row.drafts.are_certain:
        return draws
    count = 0
    for draft, draw in zip((*row.drafts.token_ids, None), draws, strict=False):
        if draw is NOTHING_DRAWN:
            break
        count += 1
        if draw.token_id != draft:
            break
    return draws[:count]
