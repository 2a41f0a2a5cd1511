"""Drafts of a head: an entry for each token whose predecessor the target has computed.

The entry of token t + 1 is made of the token and of the target's features of t, and gives t + 2. So
the head reads all tokens of a request but the first, one behind the target: what its K and V hold
of the last draft of a chain, made of the head's own states, is made again of the target's features
once the tokens have come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np

from headrace.engine.drafts.passes.draft_cache import DraftCache
from headrace.engine.drafts.passes.draft_chain import DraftChain, DraftMaker
from headrace.engine.drafts.passes.draft_row import DraftRow
from headrace.engine.drafts.passes.features import Features
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.memory.kv_memory import CachePlan
from headrace.engine.request import Request
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch
from headrace.ops.operands import Array

READY_TOKENS = 16
"""Of a request that is tried. headrace-head, begun in the middle of a text, is right 7 times of 100
behind one entry, 26 behind four, 46 behind ten and 61 behind sixteen, as behind more."""


class Head(DraftMaker, Protocol):
    """A head as the engine sees it (models/heads/head.py)."""

    @property
    def feature_layers(self) -> Sequence[int]:
        """Whose features it reads."""

    @property
    def feature_width(self) -> int:
        """Values of a token's features."""

    @property
    def block_drafts(self) -> int:
        """Drafts that the first pass gives together; 0 where each pass gives one."""

    @property
    def num_kept(self) -> int:
        """Of what a pass gives, the first so many are kept for the next step."""

    def begin(
        self,
        batch: RaggedBatch,
        kv: KVCacheArrays,
        features: Array,
        before: Sequence[Array],
        most: int,
    ) -> tuple[Array, tuple[Array, ...]]:
        """Logits f32[L, vocab_size] of batch.logit_rows, and what is carried on of each request,
        f32[R, width] each. features: f32[N, feature_width]; before: what was kept,
        f32[R, feature_width] each; most: drafts that any request wants."""

    def go_on(
        self, batch: RaggedBatch, kv: KVCacheArrays, carried: tuple[Array, ...], place: int
    ) -> tuple[Array, tuple[Array, ...]]:
        """The same of the draft at `place` - 1."""


class HeadDrafts(DraftChain[Head]):
    """The head of one engine and what the target has computed for it."""

    name = "head"
    words = "head"

    def __init__(
        self,
        head: Head,
        ops: Ops,
        plan: CachePlan,
        *,
        num_tokens: int,
        vocab_size: int | None = None,
        prefix_caching: bool = True,
        repeats: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """As of DraftChain."""
        self.features: Features = Features(ops, head.feature_layers, head.feature_width, clock)
        self.block_drafts = head.block_drafts
        self._carried: dict[Request, tuple[tuple[Array, ...], int, int]] = {}
        """What the last pass gave, the row of each request in it, and how many there were."""
        self._following: tuple[Array, ...] = ()
        """What the pass that is computed gives."""
        self._kept: dict[Request, tuple[int, list[Array]]] = {}
        """Of what the first pass of a step gave, what that of the next one reads, and the entry
        that it is for."""
        super().__init__(
            head,
            ops,
            plan,
            num_tokens=num_tokens,
            vocab_size=vocab_size,
            prefix_caching=prefix_caching,
            repeats=repeats,
            clock=clock,
        )

    def forget(self, request: Request) -> None:
        """The request has ended."""
        super().forget(request)
        self.features.forget(request)
        self._kept.pop(request, None)

    def watch(self, requests: Collection[Request] | None) -> None:
        """As of DraftChain."""
        self.features.watch(requests)

    def num_missing(self, request: Request) -> int:
        """As of DraftChain."""
        if request in self.cache and self.features.reaches(request):
            return 0
        wanted = min(READY_TOKENS, len(request.token_ids) - 1)
        return max(0, wanted - self.features.num_held(request))

    def num_at_hand(self, request: Request) -> int:
        """As of DraftChain: behind READY_TOKENS of them a head is as good as it gets."""
        return min(super().num_at_hand(request), READY_TOKENS)

    def _make_cache(self, kv: KVCache) -> DraftCache:
        return DraftCache(
            kv, self._shared_ids.params_of, skipped=1, readable_from=self._readable_from
        )

    def _readable_from(self, request: Request) -> int:
        return self.features.start(request) + 1

    def _reads(self, request: Request) -> bool:
        return self.features.reaches(request)

    def _end(self, rows: Sequence[DraftRow]) -> None:
        self._carried.clear()
        for row in rows:
            twin = row.twin
            # What was made of the head's own states is made again of the target's.
            twin.num_written = min(twin.num_written, twin.num_known)
            self.features.drop_before(row.request, twin.first + twin.num_written - 1)

    def _forward(self, rows: Sequence[DraftRow], batch: RaggedBatch) -> Array:
        if all(row.request in self._carried for row in rows):
            place = len(rows[0].twin.drafts)
            logits, *following = self._runs(batch, self._gathered(rows), place)
            self._following = tuple(following)
            return logits
        # The target has been at the token before each of those that are computed.
        parts: list[Array] = []
        for row in rows:
            start = row.twin.first + row.start - 1
            parts += self.features.take(row.request, start, start + row.count)
        features = parts[0] if len(parts) == 1 else self._ops.stacked(parts)
        before = self._before(rows, batch, features)
        most = max(row.most for row in rows)
        logits, *following = self._runs(batch, (features, *before), -most)
        self._following = tuple(following)
        return logits

    def _compute(self, batch: RaggedBatch, inputs: Sequence[Array], which: int) -> Sequence[Array]:
        """which: the place of the draft, counted from 1; below that, the first pass, for as many
        drafts at most."""
        if which > 0:
            logits, following = self.maker.go_on(batch, self._arrays, tuple(inputs), which)
        else:
            features, *before = inputs
            logits, following = self.maker.begin(batch, self._arrays, features, before, -which)
        return [logits, *following]

    def _drawn(self, rows: Sequence[DraftRow]) -> None:
        # Not before: rows that are computed again, as the sampler failed, need what was there.
        for at, row in enumerate(rows):
            if row.request not in self._carried and self.maker.num_kept:
                taken = [
                    self._ops.take_rows(values, np.array([at], np.int32))
                    for values in self._following[: self.maker.num_kept]
                ]
                self._kept[row.request] = row.twin.first + row.start + row.count, taken
            if row.draws:
                self._carried[row.request] = self._following, at, len(rows)

    def _gathered(self, rows: Sequence[DraftRow]) -> tuple[Array, ...]:
        """What the last pass gave of these rows."""
        given = [self._carried[row.request] for row in rows]
        values, _, num_rows = given[0]
        if all(of_pass is values for of_pass, _, _ in given):
            order = [at for _, at, _ in given]
            if order == list(range(num_rows)):  # nothing has to be copied
                return values
            rows_of = np.array(order, np.int32)
            return tuple(self._ops.take_rows(array, rows_of) for array in values)
        return tuple(
            self._ops.stacked(
                [
                    self._ops.take_rows(of_pass[at], np.array([row], np.int32))
                    for of_pass, row, _ in given
                ]
            )
            for at in range(len(values))
        )

    def _before(self, rows: Sequence[DraftRow], batch: RaggedBatch, features: Array) -> list[Array]:
        """What was kept of the entry before the first one of each row; where that is not known, as
        behind a cached prefix, the features of the first one stand in for it."""
        parts: list[list[Array]] = [[] for _ in range(self.maker.num_kept)]
        if not parts:
            return []
        for row, start in zip(rows, batch.query_start.tolist(), strict=False):
            entry, kept = self._kept.get(row.request, (-1, []))
            if entry != row.twin.first + row.start:
                kept = [self._ops.take_rows(features, np.array([start], np.int32))] * len(parts)
            for own, array in zip(parts, kept, strict=True):
                own.append(array)
        return [self._ops.stacked(own) for own in parts]
