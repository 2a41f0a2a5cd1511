"""Drafts that are made one after another, a pass for each place, with K and V of their own.

A draft is drawn as the target will draw at that place: with the request's parameters, its penalties
and masks, and the random number of the position. So the draft is right where both draws agree, at
any temperature; a draft that is the target itself is always right. What one number for both costs
against rejection sampling is in docs/speculation.md.

All requests that want drafts go together: a forward pass for each place, the first of which also
computes what the draft has not seen of each, one or two tokens in the usual case. More than that,
a prompt, is computed in parts, CATCH_UP_TOKENS of all requests in a step, so that no stream waits
long for another's.

Nothing that the draft does can spoil an answer: drafts are compared with what is drawn. A request
for which it gives no distribution, or fails, gets no more drafts of it (pass_isolation.py).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from statistics import median
from typing import Generic, Protocol, TypeVar

import numpy as np

from headrace.engine.drafts.passes.draft_cache import DraftCache, Twin
from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    FEW_TOKENS,
    Judge,
    Pass,
    RatedDraft,
)
from headrace.engine.drafts.passes.draft_ratings import DraftRatings
from headrace.engine.drafts.passes.draft_row import DraftRow, batch_of
from headrace.engine.drafts.passes.features import Features
from headrace.engine.drafts.passes.pass_isolation import NOT_COMPUTED, PassIsolation
from headrace.engine.drafts.passes.shared_ids import SharedIds
from headrace.engine.grammars.constraint import Look
from headrace.engine.kv.block_tables import BlockTables
from headrace.engine.kv.copies import apart
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.memory.kv_memory import CachePlan, allocate
from headrace.engine.params import SamplingParams
from headrace.engine.repeated_runs import RepeatedRuns
from headrace.engine.request import GroupTable, Request
from headrace.engine.sampling.sampler import DrawPosition, SampledToken, Sampler
from headrace.errors import ConfigError
from headrace.ops.interface import Ops
from headrace.ops.kv import RaggedBatch
from headrace.ops.operands import Array

MOST_DRAFTS = 64
"""Of a request, whatever the setting is."""

COLD_PASSES = 3
"""That are not timed: the first brings weights into the caches, and one is recorded where the
backend repeats passes."""
WARM_PASSES = 9
"""That are timed, as far as WARM_UP_S lasts. A pass takes their median: some are disturbed."""
WARM_UP_S = 0.05

MAX_STEP_TOKENS = CATCH_UP_TOKENS + MOST_DRAFTS
"""Of a request, between two times that its blocks are covered."""

logger = logging.getLogger(__name__)


class DraftMaker(Protocol):
    """A maker of drafts, a model or a head, as reports name it."""

    @property
    def model_type(self) -> str:
        """Its kind."""

    @property
    def vocab_size(self) -> int:
        """Width of its logits."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of its own weights."""


Maker = TypeVar("Maker", bound=DraftMaker)


class DraftChain(ABC, Generic[Maker]):
    """The drafts of one engine, with their own K and V."""

    words = "draft model"
    """Its maker in reports."""
    features: Features | None = None
    """What its maker reads of the target's steps; None where it reads tokens alone."""
    block_drafts: int = 0
    """Drafts that the first pass of a step gives together, so that the others only draw; 0 where
    each pass gives one."""

    def __init__(
        self,
        maker: Maker,
        ops: Ops,
        plan: CachePlan,
        *,
        num_tokens: int,
        vocab_size: int | None = None,
        prefix_caching: bool = True,
        repeats: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """plan: of the draft's own K and V. num_tokens: ids below it are the tokenizer's.
        vocab_size: the target's; None where it is the maker's. repeats: as of RepeatedRuns.

        Raises ConfigError where its K and V cannot be allocated.
        """
        self.maker = maker
        self.plan = plan
        self._ops = ops
        self._max_len = plan.max_model_len
        self._arrays = allocate(ops, plan.spec)
        self._runs = RepeatedRuns(ops, self._compute, repeats=repeats)
        self._tables = BlockTables(plan.layout.groups)
        self._num_tokens = min(num_tokens, maker.vocab_size)
        self._sampler = Sampler(ops, self._num_tokens)
        of_target = maker.vocab_size if vocab_size is None else vocab_size
        self._shared_ids = SharedIds(maker.vocab_size, of_target)
        self._ratings = DraftRatings(ops, self._num_tokens)
        kv = KVCache(
            plan.num_blocks,
            plan.block_size,
            prefix_caching=prefix_caching,
            groups=plan.layout.groups,
            max_step_tokens=MAX_STEP_TOKENS,
        )
        self.cache = self._make_cache(kv)
        self._left_out: set[Request] = set()
        self._clock = clock
        self.num_left_out = 0
        """Requests that it gave nothing usable for, since start."""
        self.isolation = PassIsolation(ops)
        self.passes: list[Pass] = []
        """Of the last call of `guess`; before the first, those of `warm_up`."""

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        """Drafts of each request, at most so many, where there are any: none of one that it has to
        read more of first, or has no room for. most_read: instead of CATCH_UP_TOKENS, which it is
        no more than. latest: of a request that lacks more than that its last tokens are read alone,
        as of a text that begins there. judge: as of DraftGenerator."""
        self.passes = []
        self._ratings.begin(None if self.block_drafts else judge)
        rows = self._rows(wanted, CATCH_UP_TOKENS if most_read is None else most_read, latest)
        if not rows:
            return {}
        for pairs in apart(self.cache.take_copies()):
            self._ops.kv_copy(self._arrays, np.array(pairs, np.int32))
        going = rows
        while going:
            self._advance(going)
            going = [row for row in going if row.count]
        self._end(rows)
        return {row.request: drafts for row in rows if (drafts := row.twin.drafts)}

    def rated(self, request: Request) -> Sequence[RatedDraft]:
        """As of DraftGenerator."""
        return self._ratings.of(request)

    def watch(self, requests: Collection[Request] | None) -> None:
        """Have ready what drafts of these requests are made of, of all for None, from the next step
        on, and nothing of others. A model that reads tokens alone needs nothing."""

    def take_watching_s(self) -> float:
        """Seconds that this took of steps since it was asked last."""
        return 0.0 if self.features is None else self.features.take_seconds()

    def num_missing(self, request: Request) -> int:
        """Tokens of a request that have to come, while it is watched, before drafts of it are as
        good as they get."""
        del request
        return 0

    def num_passes(self, num_drafts: int) -> int:
        """What so many drafts cost."""
        return min(num_drafts, 1) if self.block_drafts else num_drafts

    def lag(self, request: Request) -> int:
        """Tokens that it has to compute before its first draft, at most."""
        return self.cache.lag(request)

    def num_at_hand(self, request: Request) -> int:
        """As of DraftGenerator."""
        return self.cache.num_at_hand(request)

    def clear(self) -> None:
        """Forget every cached block that no request holds."""
        self.cache.kv.forget_cached()

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._left_out.discard(request)
        self.cache.release(request, keep=request.finish_reason != "error")

    def populate(self) -> None:
        """Have all memory of its K and V ready."""
        self._ops.kv_populate(self._arrays, self.plan.num_blocks, wait=True)

    def populate_ahead(self, num_requests: int) -> None:
        """Have memory ready of the blocks that the passes of the next step may take, of so many
        requests."""
        blocks = self.cache.kv.num_ready(MAX_STEP_TOKENS, num_requests)
        self._ops.kv_populate(self._arrays, blocks)

    def warm_up(self, probe: Request) -> None:
        """Compute one token before the first request does, and time it. probe: the request of one
        token that its target just computed. Raises ConfigError where it gives no usable logits, or
        memory is too short for it. Only while there is no work."""
        last = self.plan.num_blocks - 1
        blocks = [min(at, last) for at in range(1 + (1 + self._ahead) // self.plan.block_size)]
        seconds: list[float] = []
        for _ in range(COLD_PASSES + WARM_PASSES):
            own = Request("warm-up", [0], 1, SamplingParams(temperature=0), max_len=2)
            own.slot = 0
            own.tables = [
                GroupTable([(block,) * group.num_tables for block in blocks])
                for group in self.cache.kv.groups
            ]
            twin = Twin(own, probe, self.cache.skipped)
            twin.num_known = 1
            row = DraftRow(probe, twin, 1, 1)
            began_s = self._clock()
            (drawn,) = self.isolation.run([row], self._together)
            if drawn is NOT_COMPUTED:
                raise ConfigError(
                    f"--speculative-config: there is no memory left for a token of the {self.words}"
                    ": lower --gpu-memory-utilization or --max-num-batched-tokens, use a smaller "
                    "one or none, or see what else uses the device"
                )
            seconds.append(self._clock() - began_s)
            self._end([row])
            if len(seconds) > COLD_PASSES and sum(seconds) > WARM_UP_S:
                break
        self.passes = [Pass(1, median(seconds[COLD_PASSES:]))]
        self.forget(probe)
        if drawn is None or drawn.error is not None:
            reason = "" if drawn is None else f": {drawn.error}"
            raise ConfigError(
                f"--speculative-config: the {self.words} does not work{reason}; use another one, "
                "or none"
            )

    @property
    def _ahead(self) -> int:
        """Places behind a request's tokens that a pass writes to."""
        return self.block_drafts + 1 if self.block_drafts else 0

    def _make_cache(self, kv: KVCache) -> DraftCache:
        """The twins of requests, over the pool."""
        return DraftCache(kv, self._shared_ids.params_of)

    @abstractmethod
    def _end(self, rows: Sequence[DraftRow]) -> None:
        """The passes of a step have ended."""

    @abstractmethod
    def _compute(self, batch: RaggedBatch, inputs: Sequence[Array], which: int) -> Sequence[Array]:
        """What its maker computes in a pass, as of RepeatedRuns; the first are the logits."""

    @abstractmethod
    def _forward(self, rows: Sequence[DraftRow], batch: RaggedBatch) -> Array:
        """Logits f32[L, vocab] of the rows that draw, of the batch of all."""

    @abstractmethod
    def _drawn(self, rows: Sequence[DraftRow]) -> None:
        """A pass has given these rows what they draw."""

    def _rows(
        self, wanted: Sequence[tuple[Request, int]], left: int, latest: bool
    ) -> list[DraftRow]:
        """The requests that the first pass computes something of: all that came in the last step,
        and of the others what the bound leaves."""
        together = {request for request, _ in wanted}
        rows: list[DraftRow] = []
        # Those that have been read from come first: what others have in common with them is found.
        for request, most in sorted(wanted, key=lambda pair: pair[0] not in self.cache):
            # The last draft is not computed, so that it may be at the end.
            most = min(most, MOST_DRAFTS, self._max_len + 1 - len(request.token_ids))
            if self.block_drafts:
                room = self._max_len - self._ahead - len(request.token_ids)
                most = min(most, self.block_drafts if room >= 0 else 0)
            constraint = request.constraint
            if constraint is not None and (constraint.pace.is_slow or constraint.is_lent):
                continue  # what it allows is found beside the steps
            if most < 1 or request in self._left_out or not self._reads(request):
                continue
            if not self._shared_ids.has_all_of(request):
                self._left_out.add(request)
                continue
            if not left and request not in self.cache:
                continue
            start = len(request.token_ids) - left if latest else 0
            twin = self.cache.cover(request, max(most - 1, self._ahead), together, start)
            if twin is None:
                continue
            count = twin.request.lag
            if count > FEW_TOKENS:
                count = min(count, left)
                left -= count
            if count:
                rows.append(DraftRow(request, twin, count, most))
        return rows

    def _reads(self, request: Request) -> bool:
        """Whether drafts of a request can be made as far as it has come."""
        del request
        return True

    def _advance(self, rows: Sequence[DraftRow]) -> None:
        """Compute the next pass of these rows, and what each computes in the one after it."""
        began_s = self._clock()
        draws = self.isolation.run(rows, self._together)
        num_tokens = sum(row.count for row in rows)
        seconds = self._clock() - began_s
        if self.block_drafts and self.passes:
            last = self.passes[-1]
            self.passes[-1] = last._replace(seconds=last.seconds + seconds)
        else:
            self.passes.append(Pass(num_tokens, seconds, not self._runs.was_recorded))
        drafted: list[DraftRow] = []
        for row, drawn in zip(rows, draws, strict=True):
            if drawn is NOT_COMPUTED:
                row.count = 0
                continue
            twin, draft = row.twin, None if drawn is None else drawn.token_id
            if drawn is not None and drawn.error is not None and drawn.error_code is None:
                self._leave_out(row.request, drawn.error)
                row.count = 0
                continue
            row.start += row.count
            twin.num_written = row.start
            row.count = 0
            # What would come behind an end is of no use, and the end comes by itself.
            if draft is not None and not twin.request.ends_at(draft):
                twin.request.token_ids.append(draft)
                row.count = int(len(twin.drafts) < row.most)
                drafted.append(row)
        self._ratings.heed(drafted)

    def _together(self, rows: Sequence[DraftRow]) -> Sequence[SampledToken | None]:
        logits = self._forward(rows, batch_of(rows, self._tables))
        places = [
            DrawPosition(row.twin.drawn, tuple(row.twin.drafts), self._look(row))
            for row in rows
            if row.draws
        ]
        if not places:
            # Whoever reads a draw waits for the pass; else its time would be that of starting it.
            self._ops.wait_for(logits)
        drawn = iter(self._sampler.sample(logits, places) if places else ())
        found: list[SampledToken | None] = [None] * len(rows)
        drawing = [index for index, row in enumerate(rows) if row.draws]
        for at, (index, place) in enumerate(zip(drawing, places, strict=True)):
            draw = next(drawn)
            is_open = place.look is None or place.look.verdict == "open"
            if is_open and not self._is_masked(logits, at, place, draw):
                found[index] = draw
        self._ratings.note(
            logits, [rows[index] for index in drawing], [*map(found.__getitem__, drawing)]
        )
        self._drawn(rows)
        return found

    def _is_masked(self, logits: Array, at: int, place: DrawPosition, draw: SampledToken) -> bool:
        """Whether the request leaves none of the draft's own tokens, which may be fewer than the
        target's: no fault of its."""
        if draw.error is None:
            return False
        own = self._ops.take_rows(logits, np.array([at], np.int32))
        allowed = place.request.params.allowed_token_ids
        # Their mask is on the logits by now; what is NaN within it still is.
        if allowed is not None and np.isneginf(self._ops.host(own)).all():
            return True
        if place.look is None or place.look.bits is None:
            return False
        (free,) = self._sampler.sample(own, [place._replace(look=None)])
        return free.error is None

    def _look(self, row: DraftRow) -> Look | None:
        """What the request's grammar allows behind its drafts; None without one."""
        constraint = row.request.constraint
        if constraint is None:
            return None
        look = constraint.look_ahead(row.request.token_ids, row.twin.drafts)
        return self._shared_ids.look_of(look)

    def _leave_out(self, request: Request, reason: str) -> None:
        self._left_out.add(request)
        self.cache.release(request, keep=False)
        self.num_left_out += 1
        if self.num_left_out.bit_count() == 1:
            # The 1st, 2nd, 4th, 8th time: a draft that never works must not fill the disk.
            logger.warning(
                "request %s gets no more drafts of the %s (%d requests so far): %s",
                request.request_id, self.words, self.num_left_out, reason,
            )  # fmt: skip
