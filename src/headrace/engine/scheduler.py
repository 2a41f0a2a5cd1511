"""Which tokens are computed in the next step. Pure data: no arrays, no clock, no tokenizer.

A step spends a token budget on requests whose computed count lags what they want: first those one
token behind (decodes, so that none of them waits on somebody's prompt), then those further behind,
then new ones. Within each group the oldest comes first. A prompt that would take all of the budget
leaves up to half of it to new requests that need less than that, so that they do not wait for its
end. When blocks run out the youngest gives its own back and queues at the head; it finds most of
them cached when it returns.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from headrace.engine.kv_cache import KVCache, Match
from headrace.engine.messages import FinishReason
from headrace.engine.request import Request, State

RESERVE_AFTER_PREEMPTIONS = 3
"""A request preempted this often gets blocks for its full length and is not preempted again."""

MAX_PASSED = 16
"""Waiting requests passed in a step: each is looked up in the prefix tree again every time."""

WATERMARK_DIVISOR = 100
"""One block in a hundred stays free at admission, so that running requests can grow a little."""


def watermark_blocks(num_blocks: int) -> int:
    """Blocks, of so many, that admitting a request beside others leaves free."""
    return max(1, num_blocks // WATERMARK_DIVISOR)


class Row(NamedTuple):
    """Tokens [start, start + num_tokens) of a request; `samples` when they are all it wants."""

    request: Request
    start: int
    num_tokens: int
    samples: bool


class StepPlan(NamedTuple):
    """The rows of one step, at least one token each, and how many requests were preempted."""

    rows: list[Row]
    num_tokens: int
    num_preempted: int


@dataclass(slots=True)
class Totals:
    """Counters since start; prompt and prefix counts are of first admissions only.

    busy_s, moved_bytes, operations: what all steps took, moved and computed (models/cost.py).
    """

    steps: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    busy_s: float = 0.0
    moved_bytes: int = 0
    operations: int = 0
    miss_reasons: Counter[str] = field(default_factory=Counter)


class Scheduler:
    """Queue and running requests over one KV cache. `schedule` and `complete` alternate."""

    def __init__(self, kv: KVCache, *, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        self.kv = kv
        self.running: list[Request] = []
        """In order of arrival."""
        self.waiting: OrderedDict[Request, None] = OrderedDict()
        """In order of arrival, behind those that were preempted."""
        self.totals = Totals()
        self._budget = max_num_batched_tokens
        self._max_num_seqs = max_num_seqs
        self._num_slots = 0
        self._free_slots: list[int] = []
        """Of the slots below _num_slots; one more is made when none of them is free."""
        self._watermark = watermark_blocks(kv.num_blocks)

    def submit(self, request: Request) -> None:
        """Queue a request whose full length the KV cache can hold when it is alone."""
        most = self.kv.most_blocks(request.max_len)
        assert most <= self.kv.num_blocks, "refused at submission"
        self.waiting[request] = None

    def schedule(self, now_s: float) -> StepPlan:
        """Plan a step. It has rows whenever anything runs or waits."""
        num_preempted = self._make_room()
        rows: list[Row] = []
        budget = self._budget
        far_behind = [request for request in self.running if request.lag > 1]
        for request in self.running:
            if request.lag == 1:
                budget -= _spend(request, budget, rows)
        if far_behind and far_behind[0].lag > budget and not num_preempted:
            kept = min(budget, self._budget - self._budget // 2)
            passing = self._admit(rows, budget - kept, now_s, passed=far_behind[0])
            budget = kept + passing
        for request in far_behind:
            budget -= _spend(request, budget, rows)
        if not num_preempted:
            budget = self._admit(rows, budget, now_s)
        return StepPlan(rows, self._budget - budget, num_preempted)

    def complete(self, plan: StepPlan, sampled: Iterable[int | None], now_s: float) -> None:
        """Enter what a step has computed; `sampled` has an entry per row, None where none is due.

        Requests that were finished meanwhile are left alone; those that end here are released.
        """
        self.totals.steps += 1
        self.totals.computed_tokens += plan.num_tokens
        for (request, _, count, _), token in zip(plan.rows, sampled, strict=True):
            if request.state is not State.RUNNING:
                continue
            request.num_computed += count
            self.kv.commit(request)
            if token is not None:
                self.totals.generation_tokens += 1
                if request.first_token_s is None:
                    request.first_token_s = now_s
                reason = request.append(token)
                if reason is not None:
                    self.finish(request, reason)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request wherever it is and free what it has; does nothing if it has ended.

        What an "error" computed alone is not kept for others.
        """
        if request.state is State.WAITING:
            del self.waiting[request]
        elif request.state is State.RUNNING:
            self._stop(request, keep=reason != "error")
        else:
            return
        request.state = State.FINISHED
        request.finish_reason = reason
        request.waits_for = None

    def _make_room(self) -> int:
        """Cover every token of what runs, preempting where blocks run out; how often that was."""
        num_preempted = 0
        for request in list(self.running):
            while request.state is State.RUNNING and not self.kv.grow(request):
                # Without windows whoever has to grow is not reserved: it is the victim at worst.
                youngest = self.running[-1]
                unreserved = (one for one in reversed(self.running) if not _is_reserved(one))
                victim = next(unreserved, youngest)
                self._stop(victim, keep=True)
                victim.state = State.WAITING
                victim.num_preemptions += 1
                self.waiting[victim] = None
                self.waiting.move_to_end(victim, last=False)
                num_preempted += 1
        self.totals.preemptions += num_preempted
        return num_preempted

    def _admit(
        self, rows: list[Row], budget: int, now_s: float, *, passed: Request | None = None
    ) -> int:
        """Let requests in from the head of the queue while there is budget; what of it is left.

        One that waits for a prefix keeps its place and lets others pass; one that does not fit
        lets nobody pass, or it would wait for ever. With `passed`, a prompt half computed, only
        those come in that the budget computes whole. They may pass waiting ones that are younger
        than it: those would wait for its end anyway, and then it is their turn.
        """
        admitted: list[Request] = []
        num_passed = 0
        for request in self.waiting:
            if not budget or len(self.running) >= self._max_num_seqs:
                break
            if request.waits_for is not None and request.waits_for.pending:
                continue
            match = self.kv.find(request)
            request.waits_for = match.waits_for
            if match.waits_for is not None:
                continue
            if passed is not None:
                lag = request.num_wanted - len(match.nodes) * self.kv.block_size
                if lag > budget:
                    num_passed += 1
                    if request.arrival < passed.arrival or num_passed > MAX_PASSED:
                        break
                    continue
            num_tokens = request.max_len if _is_reserved(request) else request.num_wanted
            spare = self._watermark if self.running else 0
            if not self.kv.admit(request, match, num_tokens, spare):
                break
            admitted.append(request)
            self._start(request, match, now_s)
            budget -= _spend(request, budget, rows)
        for request in admitted:
            del self.waiting[request]
        return budget

    def _start(self, request: Request, match: Match, now_s: float) -> None:
        request.state = State.RUNNING
        request.slot = self._take_slot()
        request.table_synced = 0
        insort(self.running, request, key=attrgetter("arrival"))
        if request.admitted_s is not None:
            return
        request.admitted_s = now_s
        request.cached_tokens = request.num_computed
        totals = self.totals
        totals.prompt_tokens += request.num_prompt
        totals.prefix_queries_tokens += request.num_prompt if self.kv.prefix_caching else 0
        totals.prefix_hits_tokens += request.cached_tokens
        if match.miss is not None:
            totals.miss_reasons[match.miss.reason] += 1
            request.cache_miss = f"{match.miss.reason} at token {match.miss.token}"

    def _stop(self, request: Request, *, keep: bool) -> None:
        self.running.remove(request)
        self.kv.release(request, keep=keep)
        self._free_slots.append(request.slot)
        request.slot = -1

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._num_slots += 1
        return self._num_slots - 1


def _spend(request: Request, budget: int, rows: list[Row]) -> int:
    """Plan as much of what `request` lacks as the budget allows; how much that is."""
    lag = request.lag
    count = min(lag, budget)
    if count:
        rows.append(Row(request, request.num_computed, count, count == lag))
    return count


def _is_reserved(request: Request) -> bool:
    """Whether a request gets, or has, blocks for its full length (see the constant)."""
    return request.num_preemptions >= RESERVE_AFTER_PREEMPTIONS
