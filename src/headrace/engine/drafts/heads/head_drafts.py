"""Drafts of a head: an entry for each token whose predecessor the target has computed.

The entry of token t + 1 is made of the token and of the target's features of t, and gives t + 2. So
the head reads all tokens of a request but the first, one behind the target: what its K and V hold
of the last draft of a chain, made of the head's own states, is made again of the target's features
once the tokens have come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Protocol

import numpy as np

from headrace.engine.drafts.passes.draft_cache import DraftCache
from headrace.engine.drafts.passes.draft_chain import DraftChain, DraftMaker, DraftRow
from headrace.engine.drafts.passes.features import Features
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.memory.kv_memory import CachePlan
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import DrawPosition
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import KVCacheArrays, RaggedBatch


class Head(DraftMaker, Protocol):
    """A head as the engine sees it (models/heads/head.py)."""

    @property
    def feature_layers(self) -> Sequence[int]:
        """Whose features it reads."""

    @property
    def feature_width(self) -> int:
        """Values of a token's features."""

    def states(self, features: Array) -> Array:
        """What goes into its layer of features f32[N, feature_width]: f32[N, width]."""

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays, states: Array) -> tuple[Array, Array]:
        """Logits f32[L, vocab_size] of batch.logit_rows, and the states f32[L, width] behind."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """As of DraftChain."""
        self.features: Features = Features(ops, head.feature_layers, head.feature_width)
        self._carried: dict[Request, tuple[Array, int]] = {}
        """The states that the last pass gave, and the row of each request."""
        self._following: Array = None
        """Those of the pass that is computed."""
        super().__init__(
            head,
            ops,
            plan,
            num_tokens=num_tokens,
            vocab_size=vocab_size,
            prefix_caching=prefix_caching,
            clock=clock,
        )

    def forget(self, request: Request) -> None:
        """The request has ended."""
        super().forget(request)
        self.features.forget(request)

    def _make_cache(self, kv: KVCache) -> DraftCache:
        return DraftCache(kv, self._params_of, skipped=1, readable_from=self._readable_from)

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
        logits, self._following = self.maker.forward(batch, self._arrays, self._states(rows))
        return logits

    def _drawn(self, rows: Sequence[DraftRow]) -> None:
        # Not before: rows that are computed again, as the sampler failed, need what was there.
        drawing = (row.request for row in rows if row.draws)
        self._carried.update((request, (self._following, at)) for at, request in enumerate(drawing))

    def _states(self, rows: Sequence[DraftRow]) -> Array:
        """Of all tokens that a pass computes. In the first one the target has been at the token
        before each of them, in the others the head alone."""
        carried = [self._carried.get(row.request) for row in rows]
        if all(each is not None for each in carried):
            places = [each for each in carried if each is not None]
            values = places[0][0]
            if all(each is values for each, _ in places):
                return self._ops.take_rows(values, np.array([at for _, at in places], np.int32))
            return self._ops.stacked(
                [self._ops.take_rows(each, np.array([at], np.int32)) for each, at in places]
            )
        parts: list[Array] = []
        for row in rows:
            start = row.twin.first + row.start - 1
            parts += self.features.take(row.request, start, start + row.count)
        return self.maker.states(parts[0] if len(parts) == 1 else self._ops.stacked(parts))

    def _place(self, row: DraftRow) -> DrawPosition:
        # A request of all tokens: its position, and what its penalties count, begin with the first
        # one, which the twin does not have.
        request = row.request
        if request.params.logprobs is not None:
            request = copy(request)
            request.params = row.twin.request.params  # without log probabilities
        return DrawPosition(request, tuple(row.twin.drafts), self._look(row))
