"""Which tokens are computed in the next step. Pure data: no arrays, no clock, no tokenizer.

A step spends a budget (step_budget.py) on requests whose computed count lags what they want: first
those one token behind (decodes, so that none of them waits on somebody's prompt), then those
further behind, then new ones. Within each group the first in rank comes first: the lower priority,
then the older. A prompt that would take all of the budget leaves up to half of it to those that
need less than half a step's tokens, so that they do not wait for its end. When blocks run out the
last in rank gives its own back and queues before its equals; it finds most of them cached when it
returns.

Whoever waits with a strictly lower priority than somebody who runs enters before the step is
planned, and where there is no slot or block for it takes those of the last in rank, never of an
equal and never of a reserved one. No two requests can push each other out in turn: only a lower
number displaces a higher, and each request is preempted RESERVE_AFTER_PREEMPTIONS times at most,
for whichever reason, so that of n requests all but finitely many steps preempt nobody, and in each
of those the first in rank that runs advances. What has no end is a stream of more urgent requests
that fills the machine: it keeps others waiting, as it was asked to.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter

from headrace.engine.drafts.proposer import NO_DRAFTS, Drafter
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.lookup import Match
from headrace.engine.kv.prefix_tree import Miss, Promise
from headrace.engine.messages import FinishReason
from headrace.engine.request import Request, State
from headrace.engine.scheduling.plan import Preemption, RowTokens, StepPlan, Totals
from headrace.engine.scheduling.step_budget import StepBudget, StepLimit, StepLoad, load_of
from headrace.engine.scheduling.step_rows import StepRows
from headrace.engine.scheduling.waiting import WaitingQueue

MAX_PASSED = 16
"""Waiting requests passed in a step: each is looked up in the prefix tree again every time."""

MAX_LOOKED_AT = 256
"""Waiting requests looked at in a step and not let in, most of which wait for a prefix in flight:
whoever is further behind waits for these in any case, and a step stays cheap however many wait."""

WATERMARK_DIVISOR = 100
"""One block in a hundred stays free at admission, so that running requests can grow a little: by a
block of each table at least."""


def watermark_blocks(kv: KVCache) -> int:
    """Blocks that admitting a request beside others leaves free."""
    return kv.num_tables * max(1, kv.num_blocks // (kv.num_tables * WATERMARK_DIVISOR))


class Scheduler:
    """Queue and running requests over one KV cache. `schedule` and `complete` alternate.

    Without priorities (all of them 0) it is first come, first served.
    """

    def __init__(
        self,
        kv: KVCache,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        drafter: Drafter | None = None,
        limit: StepLimit | None = None,
    ) -> None:
        """drafter: gives rows their drafts; None for rows without any. limit: of the time of steps
        in which somebody decodes; None for none."""
        self.kv = kv
        self.drafter = drafter
        self.running: list[Request] = []
        """In order of rank."""
        self.waiting = WaitingQueue()
        self.totals = Totals()
        self.sitting_out: list[Request] = []
        """Of the step that was planned last: those without a row because it is not known what may
        come next."""
        self._budget = max_num_batched_tokens
        self.most_chunk: int | None = None
        """Tokens of a row at most, as long as memory for steps is short; None for no such limit."""
        self._limit = limit
        self._max_num_seqs = max_num_seqs
        self._num_slots = 0
        self._free_slots: list[int] = []
        """Of the slots below _num_slots; one more is made when none of them is free."""
        self._watermark = watermark_blocks(kv)
        self._rows = StepRows(kv, drafter)
        """Of the step that is planned."""
        self._started: list[Request] = []
        """In the step that is planned."""

    @property
    def num_deferred(self) -> int:
        """Of those that are looked at, how many wait for a prefix that is being computed."""
        looked_at = islice(self.waiting, MAX_LOOKED_AT)
        return sum(each.waits_for is not None and each.waits_for.pending for each in looked_at)

    @property
    def max_num_batched_tokens(self) -> int:
        """The budget of a step."""
        return self._budget

    def admits_nobody(self) -> bool:
        """Whether steps that only decode what runs let nobody in until one of them ends, or, where
        `missing_blocks` says so, lets go of blocks before a window.

        Blocks that are free or cached only become fewer in those but for windows.
        """
        if not self.waiting:
            return True
        head = self.waiting.head
        if not self.running or head.priority < self.running[-1].priority:
            return False
        if not self._has_slot or len(self.running) >= self._budget:
            return True
        return self.missing_blocks() > 0

    def missing_blocks(self) -> int:
        """How many blocks too few are free or cached for the first that waits; 0 where that is not
        what keeps it waiting.
        """
        if not self.waiting or not self._has_slot or len(self.running) >= self._budget:
            return 0
        head = self.waiting.head
        match = self._look_up(head)
        if match is None:
            return 0
        return max(0, self.kv.missing(match, head.num_to_hold, self._watermark))

    def submit(self, request: Request) -> None:
        """Queue a request whose full length the KV cache can hold when it is alone."""
        most = self.kv.most_blocks(request.max_len)
        assert most <= self.kv.num_blocks, "refused at submission"
        request.state = State.WAITING
        self.waiting.add(request)

    def can_plan_ahead(self) -> bool:
        """Whether a step can be planned while one is in flight: nobody has to give back blocks or a
        place for it, so that whoever has a row in flight runs still, or has ended."""
        waiting, running = self.waiting, self.running
        if waiting and running and waiting.head.priority < running[-1].priority:
            return False
        return all(self.kv.grow(request) for request in running if request.lag)

    def begin(self, plan: StepPlan) -> None:
        """A step is in flight: what it computes and gives counts from now on, and its tokens come
        with `complete`."""
        for row in plan.rows:
            row.request.num_in_flight += row.num_tokens
            row.request.num_due += row.samples

    def take_back(self, plan: StepPlan) -> None:
        """A step is in flight no more, whatever came of it: `begin` undone."""
        for row in plan.rows:
            if row.request.state is State.RUNNING:
                row.request.num_in_flight -= row.num_tokens
                row.request.num_due -= row.samples

    def schedule(self, now_s: float) -> StepPlan:
        """Plan a step. It has rows whenever anything runs or waits and does not sit out."""
        self.sitting_out = []
        rows = self._rows = StepRows(self.kv, self.drafter, self.most_chunk)
        self._started = []
        num_preempted = self._make_room()
        if not num_preempted:
            num_preempted = self._admit_urgent(now_s)
        budget = StepBudget(self._budget, self._limit)
        running = [request for request in self.running if not self._sits_out(request)]
        far_behind = [request for request in running if request.lag > 1]
        for request in running:
            if request.lag == 1:
                budget.take(rows.add(request, budget.num_tokens, drafts_too=False))
        # What else is due would wait for guesses, which may be wrong.
        guesses = not far_behind and not self.waiting
        budget.take(rows.add_drafts(budget.num_tokens, guesses=guesses))
        if far_behind or self.waiting:
            budget.begin_prompts(load_of(rows.rows))
        if far_behind and not num_preempted:
            far_behind = self._let_pass(far_behind, budget, now_s)
        for request in far_behind:
            self._add_prompt(request, budget)
        if not num_preempted:
            self._admit(budget, now_s)
        return StepPlan(
            rows.rows,
            self._budget - budget.num_tokens,
            num_preempted,
            self._started,
            self.kv.take_copies(),
            budget.seconds if budget.is_short else 0.0,
        )

    def _let_pass(
        self, far_behind: list[Request], budget: StepBudget, now_s: float
    ) -> list[Request]:
        """Where the first prompt would take all of the budget, give part of it to short ones, those
        that run before those that wait; whoever of `far_behind` has no row yet.

        One is short that lacks no more than the tokens which may pass. With a limit of time it may
        take several steps to compute these.
        """
        first = far_behind[0]
        if first.lag <= budget.room(first.num_begun):
            return far_behind
        passing = budget.of_passing()
        most = passing.num_tokens
        others: list[Request] = []
        for request in far_behind[1:]:
            if request.priority == first.priority and request.lag <= most:
                self._add_prompt(request, passing)
            else:
                others.append(request)
        self._admit(passing, now_s, passed=first)
        budget.join(passing, most)
        return [first, *others]

    def _add_prompt(self, request: Request, budget: StepBudget) -> None:
        """Plan as much of what a request lacks as there is room for, if there is any."""
        start, lag = request.num_begun, request.lag
        budget.take_prompt(start, lag, self._rows.add(request, budget.room(start)))

    def complete(self, plan: StepPlan, given: Iterable[RowTokens], now_s: float) -> None:
        """Enter what a step has computed and what each of its rows gave.

        Requests that were finished meanwhile are left alone; those that end here are released.
        """
        self.totals.steps += 1
        self.totals.computed_tokens += plan.num_tokens
        self.totals.limited_steps += plan.limited_s > 0
        speculation = None if self.drafter is None else self.drafter.speculation
        for row, (token_ids, ends, put_off) in zip(plan.rows, given, strict=True):
            request = row.request
            if put_off:
                self.totals.computed_tokens -= row.num_tokens
            if put_off or request.state is not State.RUNNING:
                continue
            num_before = request.num_wanted
            if speculation is not None and row.samples:
                speculation.note(request, num_before, token_ids)
            reason = self._take(request, token_ids) or ends
            if reason != "error":
                # What was computed behind the tokens it has now are drafts that did not come.
                reached = row.start + row.num_tokens
                if row.samples:
                    reached = min(reached, max(num_before, request.num_wanted - 1))
                request.num_computed = reached
                request.num_scored += len(row.scored)
                self.kv.commit(request)
            if request.num_computed == request.max_len:
                reason = reason or "length"  # only to be read
            if not token_ids and reason is None:
                continue
            if request.first_token_s is None and (token_ids or reason != "error"):
                request.first_token_s = now_s
                request.num_first_tokens = request.num_wanted - num_before
            if request.num_wanted > num_before:
                request.last_token_s = now_s
            if row.drafts is not NO_DRAFTS:
                self.totals.count_drafts(request, row.drafts, request.token_ids[num_before:])
            if reason is not None:
                self.finish(request, reason)

    def _take(self, request: Request, token_ids: Sequence[int]) -> FinishReason | None:
        """Append tokens up to the one that ends the request; the reason, if one does."""
        for token_id in token_ids:
            self.totals.generation_tokens += 1
            reason = request.append(token_id)
            if reason is not None:
                return reason
        return None

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request wherever it is and free what it has; does nothing if it has ended.

        What an "error" computed alone is not kept for others.
        """
        if request.state is State.WAITING:
            self.waiting.remove(request)
        elif request.state is State.RUNNING:
            self._stop(request, keep=reason != "error")
        elif request.state is State.FINISHED:
            return
        request.state = State.FINISHED
        request.finish_reason = reason
        request.waits_for = None
        if self.drafter is not None and self.drafter.speculation is not None:
            self.drafter.speculation.forget(request)
        self.totals.timeouts += reason == "timeout"

    def _make_room(self) -> int:
        """Cover every token of what runs, preempting where blocks run out; how often that was."""
        num_preempted = 0
        for request in list(self.running):
            if request.num_due and not request.lag:
                continue
            while request.state is State.RUNNING and not self.kv.grow(request):
                # Without windows whoever has to grow is not reserved: it is the victim at worst.
                last = self.running[-1]
                unreserved = (each for each in reversed(self.running) if not each.is_reserved)
                self._preempt(next(unreserved, last), "blocks")
                num_preempted += 1
        return num_preempted

    def _admit_urgent(self, now_s: float) -> int:
        """Let those in that come before somebody who runs by their priority; how many had to go.

        They are given budget with what runs, by rank. One for whom there would be none in this step
        takes nobody's place yet. One that does not fit, even so, lets nobody pass.
        """
        displaced: list[Request] = []
        entered: list[Request] = []
        for request in islice(self.waiting, MAX_LOOKED_AT):
            if not self.running or request.priority >= self.running[-1].priority:
                break
            if request in displaced:
                break
            match = self._look_up(request)
            if match is None:
                continue
            if not self._room_for(request, match):
                break
            if not self._has_slot or not self._take_in(request, match, now_s):
                # What is preempted may take the place of the block that a copy would come from.
                victims = self._victims(request, match.without_copy(self.kv.block_size, "no_room"))
                if not victims:
                    break
                for victim in victims:
                    self._preempt(victim, "priority")
                displaced += victims
                fits = self._take_in(request, match, now_s)
                assert fits, "the blocks of preempted requests are enough"
            entered.append(request)
        for request in entered:
            self.waiting.remove(request)
        return len(displaced)

    def _room_for(self, request: Request, match: Match) -> int:
        """Tokens of the next step that are left for a request not yet in, when those have theirs
        that come before it."""
        budget = StepBudget(self._budget, self._limit)
        decoding = [other for other in self.running if other.lag == 1]
        budget.take(min(budget.num_tokens, len(decoding)))
        context = sum(other.num_coming for other in decoding)
        budget.begin_prompts(StepLoad(decodes=len(decoding), context_tokens=context))
        for other in self.running:
            if other.lag > 1 and other.rank < request.rank:
                start = other.num_begun
                count = self._rows.chunk(other, budget.room(start))
                budget.take_prompt(start, other.lag, count)
        return budget.room(match.num_tokens)

    def _victims(self, request: Request, match: Match) -> list[Request]:
        """Who has to go so that `request` fits: the last in rank, no more than needed.

        Empty where all of those that may be displaced by it are too few.
        """
        may_go = [
            each
            for each in reversed(self.running)
            if each.priority > request.priority and not each.is_reserved
        ]
        num_tokens = request.num_to_hold
        missing = self.kv.missing(match, num_tokens, spare=0)
        if sum(map(self.kv.num_held, may_go)) < missing:
            return []  # cheap to see, and looked at in every step until it fits
        for count, gained in enumerate(self.kv.gains(may_go, match), 1):
            spare = self._watermark if count < len(self.running) else 0
            if gained >= missing + spare:
                return may_go[:count]
        return []

    def _admit(self, budget: StepBudget, now_s: float, *, passed: Request | None = None) -> None:
        """Let requests in from the head of the queue while there is budget.

        One that waits for a prefix keeps its place and lets others pass; one that does not fit
        lets nobody pass, or it would wait for ever. With `passed`, a prompt half computed, only
        those come in that the budget computes whole. They may pass waiting ones that are younger
        than it: those would wait for its end anyway, and then it is their turn.
        """
        admitted: list[Request] = []
        num_passed = 0
        is_spent = budget.is_spent
        for looked_at, request in enumerate(self.waiting):
            if is_spent or not self._has_slot or looked_at - len(admitted) > MAX_LOOKED_AT:
                break
            if passed is not None and request.priority > passed.priority:
                break
            if request.unscored and not self._rows.num_logits_left:
                continue
            match = self._look_up(request)
            if match is None:
                continue
            if passed is not None:
                lag = request.num_wanted - match.num_tokens
                if lag > budget.num_tokens or request.unscored > self._rows.num_logits_left:
                    num_passed += 1
                    if request.rank < passed.rank or num_passed > MAX_PASSED:
                        break
                    continue
            if not budget.room(match.num_tokens) or not self._take_in(request, match, now_s):
                break
            admitted.append(request)
            self._add_prompt(request, budget)
            is_spent = budget.is_spent
        for request in admitted:
            self.waiting.remove(request)

    def _look_up(self, request: Request) -> Match | None:
        """What of a request is cached; None while it waits for what somebody computes of it, or
        sits out."""
        if self._sits_out(request):
            return None
        promise = request.waits_for
        if promise is not None and promise.pending and self._is_worth_waiting(request, promise):
            return None
        match = self.kv.find(request, request.num_to_hold)
        request.waits_for = None
        if match.waits_for is None:
            return match
        if self._is_worth_waiting(request, match.waits_for):
            request.waits_for = match.waits_for
            return None
        return match._replace(waits_for=None, miss=Miss("in_flight", match.num_tokens))

    def _sits_out(self, request: Request) -> bool:
        if not request.sits_out:
            return False
        self.sitting_out.append(request)
        return True

    def _is_worth_waiting(self, request: Request, promise: Promise) -> bool:
        """Whether somebody computes it who does not come after `request` by priority.

        Whoever does may get no budget for as long as others come between them.
        """
        if self.running and self.running[-1].priority <= request.priority:
            return True
        return any(
            each.promise == promise for each in self.running if each.priority <= request.priority
        )

    @property
    def _has_slot(self) -> bool:
        return len(self.running) < self._max_num_seqs

    def _take_in(self, request: Request, match: Match, now_s: float) -> bool:
        """Run a request, which stays queued, if there are blocks for it; whether there were."""
        spare = self._watermark if self.running else 0
        start = self.kv.admit(request, match, request.num_to_hold, spare)
        if start is None:
            return False
        self._start(request, start, now_s)
        return True

    def _start(self, request: Request, match: Match, now_s: float) -> None:
        request.state = State.RUNNING
        request.slot = self._take_slot()
        insort(self.running, request, key=attrgetter("rank"))
        if request.admitted_s is not None:
            return
        request.admitted_s = now_s
        self._started.append(request)
        request.cached_tokens = request.num_computed
        is_looked_up = self.kv.prefix_caching and not request.unscored
        self.totals.count_admitted(request, match.miss, is_looked_up=is_looked_up)
        if match.miss is not None:
            request.cache_miss = f"{match.miss.reason} at token {match.miss.token}"

    def _preempt(self, victim: Request, reason: Preemption) -> None:
        assert not victim.num_in_flight, "its row in flight counts as computed"
        self._stop(victim, keep=True)
        victim.state = State.WAITING
        victim.num_preemptions += 1
        if victim.constraint is not None and not victim.constraint.is_lent:
            victim.constraint.rewind()
        self.waiting.put_back(victim)
        self.totals.preemptions[reason] += 1

    def _stop(self, request: Request, *, keep: bool) -> None:
        self.running.remove(request)
        self.kv.release(request, keep=keep)
        request.num_in_flight = request.num_due = 0
        self._free_slots.append(request.slot)
        request.slot = -1

    def _take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._num_slots += 1
        return self._num_slots - 1
