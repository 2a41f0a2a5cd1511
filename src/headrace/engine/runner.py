"""From a plan to tokens: the ragged batch, the model's forward, the sampler.

This runs every step, so arrays are built by whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.kv.block_tables import BlockTables
from headrace.engine.kv.kv_cache import Copy
from headrace.engine.masks import MaskThread
from headrace.engine.messages import TokenLogprob
from headrace.engine.model import Model
from headrace.engine.plan import Row
from headrace.engine.sampler import NOT_YET, SampledToken, Sampler
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.sampling_rows import UnusableLogitsError


class RowResult(NamedTuple):
    """The result of a row: its sampled token, and the log probabilities of the prompt's tokens
    after `Row.scored`."""

    draw: SampledToken
    scores: Sequence[TokenLogprob] = ()


NOTHING_YET = RowResult(NOT_YET)


class Runner:
    """A model with its KV cache and sampler. Keeps nothing of a request but its table's row."""

    def __init__(
        self,
        model: Model,
        kv: KVCacheArrays,
        sampler: Sampler,
        ops: Ops,
    ) -> None:
        self._model = model
        self._kv = kv
        self._sampler = sampler
        self._ops = ops
        self._masks = MaskThread()
        self._tables = BlockTables(model.cache_layout.groups)

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy blocks, one after another, before a step whose plan orders it."""
        for pairs in apart(copies):
            self._ops.kv_copy(self._kv, np.array(pairs, np.int32))

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the tokens of `rows`, draw for those that sample; one entry per row."""
        masks = self._masks.begin([row.request for row in rows if row.samples])
        try:
            logits = self._model.forward(self._batch(rows), self._kv)
        finally:
            if masks is not None:
                masks.result()
        if any(row.scored for row in rows):
            return self._score_and_draw(rows, logits)
        sampling = [row.request for row in rows if row.samples]
        if not sampling:
            return [NOTHING_YET] * len(rows)
        drawn = map(RowResult, self._sampler.sample(logits, sampling))
        return [next(drawn) if row.samples else NOTHING_YET for row in rows]

    def _score_and_draw(self, rows: Sequence[Row], logits: Array) -> list[RowResult]:
        """Each row's logits are those of its scored positions, then that which gives a token."""
        starts = np.cumsum([0, *(len(row.scored) + row.samples for row in rows)]).tolist()
        at = [end - 1 for row, end in zip(rows, starts[1:], strict=True) if row.samples]
        sampling = [row.request for row in rows if row.samples]
        draws: list[SampledToken] = []
        if sampling:
            own = self._ops.take_rows(logits, np.array(at, np.int32))
            draws = self._sampler.sample(own, sampling)
        drawn = iter(draws)
        results = []
        for row, start in zip(rows, starts[:-1], strict=True):
            draw = next(drawn) if row.samples else NOT_YET
            results.append(self._score(row, logits, start, draw) if row.scored else RowResult(draw))
        return results

    def _score(self, row: Row, logits: Array, start: int, draw: SampledToken) -> RowResult:
        scored, params = row.scored, row.request.params
        own = self._ops.take_rows(logits, np.arange(start, start + len(scored), dtype=np.int32))
        following = row.request.token_ids[scored.start + 1 : scored.stop + 1]
        try:
            scores = self._sampler.score(own, following, params.prompt_logprobs or 0)
        except UnusableLogitsError as error:
            return RowResult(SampledToken(error=f"the prompt has no log probabilities: {error}"))
        return RowResult(draw, scores)

    def _batch(self, rows: Sequence[Row]) -> RaggedBatch:
        starts = np.array([row.start for row in rows], np.int32)
        counts = np.array([row.num_tokens for row in rows], np.int32)
        query_start = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=query_start[1:])
        token_ids: list[int] = []
        for request, start, count, *_ in rows:
            if count == 1:
                token_ids.append(request.token_ids[start])
            else:
                token_ids += request.token_ids[start : start + count]
        positions = np.arange(len(token_ids), dtype=np.int32)
        positions += np.repeat(starts - query_start[:-1], counts)
        samples = np.array([row.samples for row in rows], np.bool_)
        logit_rows = query_start[1:][samples] - np.int32(1)
        if any(row.scored for row in rows):
            logit_rows = _logit_rows(rows, query_start)
        return RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            query_start=query_start,
            block_tables=self._tables.of([row.request for row in rows]),
            logit_rows=logit_rows,
        )


def apart(copies: Sequence[Copy]) -> list[list[Copy]]:
    """The copies in runs in which no block is written that another copy reads or writes, so that
    the order within a run is of no account.
    """
    runs: list[list[Copy]] = []
    read: set[int] = set()
    written: set[int] = set()
    for source, target in copies:
        if not runs or source in written or target in written or target in read:
            runs.append([])
            read, written = set(), set()
        runs[-1].append((source, target))
        read.add(source)
        written.add(target)
    return runs


def _logit_rows(rows: Sequence[Row], query_start: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Of each row, its scored positions and then its last where it samples."""
    parts = []
    for row, first in zip(rows, query_start[:-1].tolist(), strict=True):
        offset = first - row.start
        parts.append(np.arange(row.scored.start, row.scored.stop, dtype=np.int32) + offset)
        if row.samples:
            parts.append(np.array([first + row.num_tokens - 1]))
    return np.concatenate(parts).astype(np.int32)
