"""Drafts that are made one after another, a pass for each place, with K and V of their own.

A draft is drawn as the target will draw at that place: with the request's parameters, its penalties
and masks, and the random number of the position. So the draft is right where both draws agree, at
any temperature; a draft that is the target itself is always right. That the number is one for both
costs something against rejection sampling where temperatures are above 0, which accepts with the
sum of min(p, q) over the tokens, the most that any joint draw of the two can have.

All requests that want drafts go together: a forward pass for each place, the first of which also
computes what the draft has not seen of each, one or two tokens in the usual case. More than that,
a prompt, is computed in parts, CATCH_UP_TOKENS of all requests in a step, so that no stream waits
long for another's.

Nothing that the draft does can spoil an answer: drafts are compared with what is drawn. A request
for which it gives no distribution, or fails, gets no more drafts of it; one for which memory was
short is drafted for again.
"""

from __future__ import annotations

import logging
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from math import exp
from statistics import median
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np

from headrace.engine.drafts.passes.draft_cache import DraftCache, Twin
from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    Judge,
    JudgedDraft,
    Pass,
    RatedDraft,
)
from headrace.engine.drafts.passes.draft_policy import FEW_TOKENS
from headrace.engine.drafts.passes.features import Features
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
from headrace.ops.interface import Array, Ops
from headrace.ops.kv import RaggedBatch

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

NOT_COMPUTED = SampledToken()
"""Of a row that memory was too short for: its request is drafted for again in the next step."""

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


class DraftRow:
    """A request that is drafted for in a step."""

    def __init__(self, request: Request, twin: Twin, count: int, most: int) -> None:
        self.request = request
        self.twin = twin
        self.start = twin.num_written
        """Of the tokens that the next pass computes."""
        self.count = count
        """How many these are."""
        self.most = most
        """Drafts wanted."""

    @property
    def draws(self) -> bool:
        """Whether the pass computes all that there is, so that a draft follows."""
        return self.start + self.count == len(self.twin.request.token_ids)


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
        self._vocab_size = maker.vocab_size
        self._mask_words = (maker.vocab_size + 31) // 32
        of_target = maker.vocab_size if vocab_size is None else vocab_size
        self._narrow = maker.vocab_size < of_target
        self._same_words = self._mask_words == (of_target + 31) // 32
        kv = KVCache(
            plan.num_blocks,
            plan.block_size,
            prefix_caching=prefix_caching,
            groups=plan.layout.groups,
            max_step_tokens=MAX_STEP_TOKENS,
        )
        self.cache = self._make_cache(kv)
        self._left_out: set[Request] = set()
        self._judge: Judge | None = None
        self._rated: dict[Request, list[RatedDraft]] = {}
        self._clock = clock
        self.num_left_out = 0
        """Requests that it gave nothing usable for, since start."""
        self.num_failed = 0
        """Passes that raised."""
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
        self._rated.clear()
        self._judge = None if self.block_drafts else judge
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
        return self._rated.get(request, ())

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
            (drawn,) = self._computed([row])
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
        return DraftCache(kv, self._params_of)

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
        for request, most in sorted(wanted, key=lambda each: each[0] not in self.cache):
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
        """Whether the draft knows all ids of a request: the target's padding may be wider."""
        if not self._narrow or max(request.token_ids, default=0) < self._vocab_size:
            return True
        self._left_out.add(request)
        return False

    def _advance(self, rows: Sequence[DraftRow]) -> None:
        """Compute the next pass of these rows, and what each computes in the one after it."""
        began_s = self._clock()
        draws = self._computed(rows)
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
        if self._judge is not None and drafted:
            self._heed(drafted, self._judge)

    def _heed(self, rows: Sequence[DraftRow], judge: Judge) -> None:
        """Go on behind the last draft of each row, end there or before it."""
        judged: list[JudgedDraft] = []
        for row in rows:
            place = len(row.twin.drafts) - 1
            probability = self._rated[row.request][place].probability
            judged.append(JudgedDraft(row.request, place, probability, row.count > 0))
        for row, verdict in zip(rows, judge(judged), strict=True):
            if verdict != "on":
                row.count = 0
            if verdict == "drop":
                row.twin.request.token_ids.pop()

    def _computed(self, rows: Sequence[DraftRow]) -> Sequence[SampledToken | None]:
        """What is drawn behind each row, None where nothing is; where the pass raises, each row is
        computed alone, and an error is the result of those for which it raises again. Where memory
        is short they are computed in halves, and one that does not fit alone is not computed."""
        try:
            return self._together(rows)
        except Exception as error:  # of a model, a backend or one row: each row alone shows whose
            self.num_failed += 1
            if self._ops.fault_of(error) == "memory":
                # What the frames of the failed pass hold would be lacking again.
                traceback.clear_frames(error.__traceback__)
                self._ops.release_memory()
                if len(rows) == 1:
                    return [NOT_COMPUTED]
                half = len(rows) // 2
                return [*self._computed(rows[:half]), *self._computed(rows[half:])]
            if len(rows) == 1:
                return [SampledToken(error=f"{type(error).__name__}: {error}")]
        return [self._computed([row])[0] for row in rows]

    def _together(self, rows: Sequence[DraftRow]) -> Sequence[SampledToken | None]:
        logits = self._forward(rows, self._batch(rows))
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
            if not _is_closed(place.look) and not self._is_masked(logits, at, place, draw):
                found[index] = draw
        if self._judge is not None:
            self._rate(logits, [rows[index] for index in drawing], [found[at] for at in drawing])
        self._drawn(rows)
        return found

    def _rate(
        self, logits: Array, rows: Sequence[DraftRow], draws: Sequence[SampledToken | None]
    ) -> None:
        """Note the probabilities of what rows of logits, one for each row, drew; where nothing was
        drawn there may be no distribution, so that those rows are left out."""
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

    def _is_masked(self, logits: Array, at: int, place: DrawPosition, draw: SampledToken) -> bool:
        """Whether nothing was drawn because a grammar leaves none of the draft's own tokens, which
        may be fewer than the target's: no fault of its."""
        if draw.error is None or place.look is None or place.look.bits is None:
            return False
        own = self._ops.take_rows(logits, np.array([at], np.int32))
        (free,) = self._sampler.sample(own, [place._replace(look=None)])
        return free.error is None

    def _batch(self, rows: Sequence[DraftRow]) -> RaggedBatch:
        starts = np.array([row.start for row in rows], np.int32)
        tables = self._tables.of([row.twin.request for row in rows])
        if all(row.count == 1 and row.draws for row in rows):
            # Every pass of a chain but the first: what it does not need would take as long as the
            # products of a small model.
            last = np.array([row.twin.request.token_ids[-1] for row in rows], np.int32)
            steps = np.arange(len(rows) + 1, dtype=np.int32)
            return RaggedBatch(last, starts, steps, tables, steps[:-1])
        counts = np.array([row.count for row in rows], np.int32)
        query_start = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=query_start[1:])
        token_ids: list[int] = []
        for row in rows:
            token_ids += row.twin.request.token_ids[row.start : row.start + row.count]
        positions = np.arange(len(token_ids), dtype=np.int32)
        positions += np.repeat(starts - query_start[:-1], counts)
        draws = np.array([row.draws for row in rows], np.bool_)
        return RaggedBatch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            query_start=query_start,
            block_tables=tables,
            logit_rows=query_start[1:][draws] - np.int32(1),
        )

    def _look(self, row: DraftRow) -> Look | None:
        """What the request's grammar allows behind its drafts; None without one."""
        constraint = row.request.constraint
        if constraint is None:
            return None
        look = constraint.look_ahead(row.request.token_ids, row.twin.drafts)
        if look.bits is None or self._same_words:
            return look
        bits = np.zeros(self._mask_words, np.uint32)
        shared = min(len(bits), len(look.bits))
        bits[:shared] = look.bits[:shared]
        return look._replace(bits=bits)

    def _params_of(self, params: SamplingParams) -> SamplingParams:
        """What a request's drafts are drawn with: without log probabilities, and without ids that
        the draft does not have."""
        params = msgspec.structs.replace(params, logprobs=None, prompt_logprobs=None)
        if not self._narrow:
            return params
        size, allowed = self._vocab_size, params.allowed_token_ids
        words = params.bad_words_token_ids
        return msgspec.structs.replace(
            params,
            logit_bias={at: bias for at, bias in params.logit_bias.items() if at < size},
            allowed_token_ids=None if allowed is None else tuple(at for at in allowed if at < size),
            bad_words_token_ids=tuple(word for word in words if max(word) < size),
        )

    def _leave_out(self, request: Request, reason: str) -> None:
        self._left_out.add(request)
        self.cache.release(request, keep=False)
        self.num_left_out += 1
        if self.num_left_out.bit_count() == 1:
            # The 1st, 2nd, 4th, 8th time: a draft that never works must not fill the disk.
            logger.warning(
                "request %s gets no more drafts of the %s (%d requests so far): %s",
                request.request_id,
                self.words,
                self.num_left_out,
                reason,
            )


def _is_closed(look: Look | None) -> bool:
    """Whether a grammar leaves nothing to draw."""
    return look is not None and look.verdict != "open"
