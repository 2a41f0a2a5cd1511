"""One replica: the engine's scheduler and KV cache, with a model of time in place of a model."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from headrace.engine.drafts.proposer import Drafter
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request, State
from headrace.engine.scheduling.fast_forward import fast_forward, steps_alike, steps_until_released
from headrace.engine.scheduling.plan import RowTokens, StepPlan, Totals
from headrace.engine.scheduling.scheduler import Scheduler, watermark_blocks
from headrace.engine.scheduling.step_budget import StepLimit, load_of
from headrace.plan.simulation.arrival import own_token
from headrace.plan.simulation.call import Call
from headrace.plan.simulation.drafts import Guesses, given_by
from headrace.plan.simulation.events import EventQueue
from headrace.plan.simulation.settings import EngineSettings

_PARAMS = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)


class Phase(Enum):
    """The phase of a replica. Only a READY one gets requests; a DRAINING one finishes those it
    has."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"
    GONE = "gone"


@dataclass(slots=True)
class _Stretch:
    """Steps that only decode. The first takes first_s, each further one growth_s more than the one
    before it, as every context is a token longer. done: how many are entered in the scheduler.
    """

    start_s: float
    steps: int
    first_s: float
    growth_s: float
    done: int = 0

    def end_s(self, steps: int) -> float:
        return self.start_s + steps * self.first_s + self.growth_s * (steps * (steps - 1) // 2)

    def steps_by(self, at_s: float) -> int:
        """How many are over at `at_s`, `done` at least."""
        passed, slope = at_s - self.start_s, self.growth_s
        if slope > 0:
            half = self.first_s - slope / 2
            guess = (math.sqrt(half * half + 2 * slope * max(0.0, passed)) - half) / slope
        else:
            guess = passed / self.first_s if self.first_s > 0 else self.steps
        steps = min(max(int(guess), self.done), self.steps)
        while steps < self.steps and self.end_s(steps + 1) <= at_s:
            steps += 1
        while steps > self.done and self.end_s(steps) > at_s:
            steps -= 1
        return steps


class Replica:
    """A server that runs steps while it has work; `on_end` is called with each call that ends here,
    and when.
    """

    def __init__(
        self,
        number: int,
        settings: EngineSettings,
        events: EventQueue,
        on_end: Callable[[Replica, Call, float], None],
    ) -> None:
        self.number = number
        self.phase = Phase.READY
        self.started_s = events.now_s
        """When it was begun to be paid for."""
        self.gone_s: float | None = None
        self.busy_s = 0.0
        self.batch_s = 0.0
        """Requests running, each for the seconds it ran."""
        self.steps = 0
        self.generated_tokens = self.computed_tokens = 0
        self.preemptions = 0
        self.query_tokens = self.hit_tokens = 0
        self.draft_tokens = self.accepted_tokens = 0
        self._settings = settings
        self._events = events
        self._on_end = on_end
        self._epoch = 0
        """Events of an earlier one are void."""
        self._reset()

    def _reset(self) -> None:
        settings = self._settings
        self.kv = KVCache(
            settings.num_blocks,
            settings.block_size,
            prefix_caching=settings.prefix_caching,
            groups=settings.groups,
            max_step_tokens=settings.max_num_batched_tokens,
        )
        target_s = settings.max_step_ms / 1e3
        self.scheduler = Scheduler(
            self.kv,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_seqs=settings.max_num_seqs,
            drafter=Drafter([Guesses(settings.acceptance)]) if settings.acceptance else None,
            limit=StepLimit(target_s, settings) if target_s else None,
        )
        self._calls: dict[Request, Call] = {}
        self.num_calls = 0
        """Running and waiting; a router reads those of all replicas at each arrival."""
        self._landing: list[tuple[int, int, Request]] = []
        """Requests whose KV cache has come from elsewhere and that wait for blocks, in order."""
        self._plan: StepPlan | None = None
        self._step_s = 0.0
        self._stretch: _Stretch | None = None

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._calls) - len(self.scheduler.running)

    @property
    def all_preemptions(self) -> int:
        """Since the start; `preemptions` counts them when the scheduler is done with."""
        return self.preemptions + self.scheduler.totals.preemptions.total()

    def kv_share(self, now_s: float) -> float:
        """Of its blocks, those that running requests use."""
        self._catch_up(now_s)
        return self.kv.num_owned / self.kv.num_blocks

    def holds(self, num_tokens: int) -> bool:
        """Whether a request that grows to so many tokens fits when it is alone."""
        return self.kv.most_blocks(num_tokens) <= self.kv.num_blocks

    def submit(
        self, call: Call, tokens: list[int], new_tokens: int, now_s: float, *, landed: bool = False
    ) -> None:
        """Queue a request that ends after `new_tokens`; landed: the KV cache of all of `tokens` but
        the last has been sent here.
        """
        request = Request(
            request_id=str(call.number), token_ids=tokens, num_prompt=len(tokens), params=_PARAMS,
            max_len=len(tokens) + new_tokens, priority=call.arrival.priority, arrival=call.number,
            arrived_s=now_s,
        )  # fmt: skip
        self._calls[request] = call
        self.num_calls += 1
        if landed:
            insort(self._landing, (*request.rank, request))
        else:
            self.scheduler.submit(request)
        if self._stretch is not None:
            if not self._stays_alike():
                self._cut_short(now_s)
        elif self._plan is None:
            self._begin(now_s)

    def fail(self) -> list[Call]:
        """Lose everything; the calls that were here, in the order they came."""
        calls = list(self._calls.values())
        self.account(self._events.now_s)
        self._account_totals()
        self._epoch += 1
        self._reset()
        return calls

    def account(self, now_s: float) -> None:
        """Bring counters up to now; for a series or the end."""
        self._catch_up(now_s)

    def finish(self) -> None:
        """Enter what the scheduler has counted; it is not used any more."""
        self._account_totals()

    def _account_totals(self) -> None:
        totals = self.scheduler.totals
        self.steps += totals.steps
        self.generated_tokens += totals.generation_tokens
        self.computed_tokens += totals.computed_tokens
        self.preemptions += totals.preemptions.total()
        self.draft_tokens += totals.draft_tokens
        self.accepted_tokens += totals.accepted_tokens
        self.query_tokens += totals.prefix_queries_tokens
        self.hit_tokens += totals.prefix_hits_tokens
        self.scheduler.totals = Totals()

    def _begin(self, now_s: float) -> None:
        """Plan what comes next, if there is anything, and say when it is over."""
        self._land()
        scheduler, latency = self.scheduler, self._settings.latency
        if not scheduler.running and not scheduler.waiting:
            return
        steps = 0
        if not self._settings.single_steps and not self._can_land():
            steps = steps_alike(scheduler)
            if steps > 1 and self._landing and self.kv.has_windows:
                # A block that a window lets go of may be the one that lacks.
                steps = steps_until_released(scheduler, 1, steps)
        if steps > 1:
            running = scheduler.running
            context = sum(len(one.token_ids) for one in running)
            self._stretch = _Stretch(
                start_s=now_s,
                steps=steps,
                first_s=latency.step((), len(running), context),
                growth_s=latency.decode_context_token_s * len(running),
            )
            self._due(self._stretch.end_s(steps))
            return
        plan = self._plan = scheduler.schedule(now_s)
        self._step_s = self._settings.seconds(load_of(plan.rows))
        self._due(now_s + self._step_s)

    def _due(self, at_s: float) -> None:
        self._epoch += 1
        epoch = self._epoch

        def over(now_s: float) -> None:
            if epoch == self._epoch:
                self._end(now_s)

        self._events.at(at_s, over)

    def _end(self, now_s: float) -> None:
        plan, stretch = self._plan, self._stretch
        if stretch is not None:
            self._advance(stretch, stretch.steps)
            self._stretch = None
        elif plan is not None:
            self._plan = None
            self.busy_s += self._step_s
            self.batch_s += self._step_s * len(self.scheduler.running)
            self.scheduler.complete(plan, [RowTokens(given_by(row)) for row in plan.rows], now_s)
            for row in plan.rows:
                if row.request.state is State.FINISHED:
                    self._leave(row.request, now_s)
        if self._plan is None and self._stretch is None:
            self._begin(now_s)

    def _leave(self, request: Request, now_s: float) -> None:
        call = self._calls.pop(request)
        self.num_calls -= 1
        if call.admitted_s is None:
            call.admitted_s = request.admitted_s
        if call.first_token_s is None:
            call.first_token_s = request.first_token_s
        call.preemptions += request.num_preemptions
        call.cached_tokens += request.cached_tokens
        self._on_end(self, call, now_s)

    def _catch_up(self, now_s: float) -> None:
        """Enter the steps of a stretch that are over, so that figures are those of now."""
        if self._stretch is not None:
            self._advance(self._stretch, self._stretch.steps_by(now_s))

    def _advance(self, stretch: _Stretch, steps: int) -> None:
        new = steps - stretch.done
        if new:
            seconds = stretch.end_s(steps) - stretch.end_s(stretch.done)
            self.busy_s += seconds
            self.batch_s += seconds * len(self.scheduler.running)
            fast_forward(self.scheduler, new, _own_token)
            stretch.done = steps

    def _stays_alike(self) -> bool:
        if self.kv.has_windows and (self._landing or self.scheduler.missing_blocks()):
            return False  # how long it stays so has to be seen again
        return not self._can_land() and self.scheduler.admits_nobody()

    def _cut_short(self, now_s: float) -> None:
        """End the stretch with the step that is being computed."""
        stretch = self._stretch
        assert stretch is not None
        steps = stretch.steps_by(now_s)
        if stretch.end_s(steps) < now_s or steps == 0:
            steps = min(steps + 1, stretch.steps)
        if steps < stretch.steps:
            stretch.steps = steps
            self._due(stretch.end_s(steps))

    def _can_land(self, reserved: int = 0) -> bool:
        """Whether the first of those that landed would be let in with the next step.

        reserved: blocks for those that have just been let in and hold none yet.
        """
        scheduler = self.scheduler
        if not self._landing or scheduler.waiting.num_put_back:
            return False
        if len(scheduler.running) + len(scheduler.waiting) >= self._settings.max_num_seqs:
            return False
        request = self._landing[0][2]
        spare = watermark_blocks(self.kv) if scheduler.running or reserved else 0
        missing = self.kv.missing(self.kv.find(request), request.num_wanted, spare + reserved)
        return missing <= 0

    def _land(self) -> None:
        """Put KV caches that have come into the prefix tree, where their requests find them."""
        reserved = 0
        while self._can_land(reserved):
            request = self._landing.pop(0)[2]
            carrier = Request(
                request.request_id, list(request.token_ids), request.num_prompt, _PARAMS,
                request.max_len,
            )  # fmt: skip
            if self.kv.admit(carrier, self.kv.find(carrier), carrier.num_wanted, 0):
                self._enter_cached(carrier, carrier.num_wanted - 1)
                self.kv.release(carrier)
            reserved += self.kv.most_blocks(request.num_wanted)
            self.scheduler.submit(request)

    def _enter_cached(self, carrier: Request, num_tokens: int) -> None:
        """Commit what a cache brings, at most as much at a time as a step computes: where layers
        have a window, a request is given no more blocks than that ahead.
        """
        while carrier.num_computed < num_tokens:
            reach = carrier.num_computed + (self.kv.max_step_tokens or num_tokens)
            carrier.num_computed = min(num_tokens, reach)
            self.kv.commit(carrier)
            if not self.kv.grow(carrier):
                return  # the rest is computed again


def _own_token(request: Request) -> int:
    return own_token(request.arrival)
