"""EngineCore: requests in, tokens out, one step at a time.

The core owns scheduler, KV cache and runner, and runs in whatever thread calls `step`. It knows
token ids only. Whatever goes wrong with one request ends that request alone, with "error"; the
others go on in the same step.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from headrace.config.settings import EngineConfig
from headrace.engine.answers import output, prefilled, started
from headrace.engine.drafts.forced_spans import ForcedSpans
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.proposer import Drafter, Proposer
from headrace.engine.drafts.speculative_config import read_speculative_config, speculation_of
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.drafts.thinking import Thinking
from headrace.engine.facts import info_of
from headrace.engine.figures import StepFigures, stats_of
from headrace.engine.flight import Flight, plans_ahead
from headrace.engine.grammars.beside import Beside
from headrace.engine.grammars.store import IDLE_WAIT_S, Grammars
from headrace.engine.isolation import IsolatingRunner
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.limits import Limits, check_submit
from headrace.engine.memory.kv_memory import CachePlan, allocate, plan_kv_cache
from headrace.engine.messages import (
    EngineInfo,
    FinishReason,
    Output,
    Started,
    Stats,
    Submit,
)
from headrace.engine.model import Model
from headrace.engine.params import SamplingParams
from headrace.engine.recorded_steps import RecordedSteps
from headrace.engine.request import GroupTable, Request, State
from headrace.engine.runner import RowResult
from headrace.engine.sampling.logits_processor import depends_on_tokens
from headrace.engine.sampling.sampler import SampledToken, Sampler
from headrace.engine.scheduling.deadlines import Deadlines
from headrace.engine.scheduling.measured_times import MeasuredTimes
from headrace.engine.scheduling.plan import Row, StepPlan
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.engine.scheduling.step_budget import StepLimit, load_of
from headrace.engine.state_check import check_states, is_idle
from headrace.engine.step_memory import StepMemory
from headrace.errors import HeadraceError, RequestError
from headrace.ops.interface import Ops
from headrace.telemetry.machine import Machine

if TYPE_CHECKING:
    from headrace.structured.vocabulary import Vocabulary

OnStarted = Callable[[list[Started]], None]

logger = logging.getLogger(__name__)


def _random_seed() -> int:
    return int.from_bytes(os.urandom(8), "little", signed=True)


class EngineCore:
    """An engine in the caller's thread; not thread-safe.

    Every submitted request gets Outputs from `step` until one has a finish_reason, which is its
    last. `has_work` says whether `step` would do or say anything.
    """

    def __init__(
        self,
        model: Model,
        ops: Ops,
        config: EngineConfig,
        *,
        num_tokens: int,
        eos_token_ids: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw_seed: Callable[[], int] = _random_seed,
        plan: CachePlan | None = None,
        machine: Machine | None = None,
        vocabulary: Callable[[], Vocabulary] | None = None,
        proposers: Sequence[Proposer] = (),
        draft: DraftChain[Any] | None = None,
    ) -> None:
        """num_tokens: ids below it may be sampled. plan: made from config and memory if None.

        machine: what was measured of this one, for shares of its limits; None where nothing was.

        vocabulary: gives what grammars need of the tokens, when the first one comes; None for a
        model whose ids have no text.

        proposers: sources of drafts, asked where no token is certain, in this order.

        draft: the model that config.speculative_config names, if it names one.

        draw_seed: gives the seed of a request that names none. Raises ConfigError when the KV
        cache cannot be what the config asks for.
        """
        if plan is None:
            plan = plan_kv_cache(model, config, device=ops.memory())
        self.kv = KVCache(
            plan.num_blocks,
            plan.block_size,
            prefix_caching=config.enable_prefix_caching,
            groups=plan.layout.groups,
            max_step_tokens=config.max_num_batched_tokens,
        )
        self._step_tokens = config.max_num_batched_tokens
        ahead = plans_ahead(config, is_asynchronous=ops.is_asynchronous)
        self._plans_ahead = ahead and not proposers and draft is None
        sources = config.speculative_config or ("none" if self._plans_ahead else "auto")
        self._speculation = speculation_of(
            read_speculative_config(sources),
            shares=config.enable_prefix_caching,
            model=draft,
            clock=clock,
        )
        self._cost = model.cost(plan.spec)
        self._costs = StepCosts() if self._speculation is None else self._speculation.costs
        self._times = MeasuredTimes(self._costs, self._cost.pair_tokens)
        target_s = config.max_step_ms / 1e3
        forced = [ForcedSpans()] if config.enable_forced_spans else []
        self.scheduler = Scheduler(
            self.kv,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            drafter=Drafter([*forced, *proposers], self._speculation),
            limit=StepLimit(target_s, self._times) if target_s else None,
        )
        self._memory = StepMemory(config.max_num_batched_tokens)
        self._sleep = sleep
        kv = allocate(ops, plan.spec)
        self._recorded = RecordedSteps(
            model, ops, kv, num_tables=plan.layout.num_tables, max_model_len=plan.max_model_len
        )
        self._records = 0 if config.enforce_eager else config.max_num_seqs
        self._runner = IsolatingRunner(
            self._memory,
            model,
            plan.layout.groups,
            kv,
            Sampler(ops, min(num_tokens, model.vocab_size)),
            ops,
            None if draft is None else draft.features,
            self._recorded,
            repeats=not config.enforce_eager,
        )
        at_most = plan.max_model_len == model.max_positions
        self.limits = Limits(
            max_model_len=plan.max_model_len,
            length_cause=model.length_cause if at_most else "",
            pool_tokens=plan.pool_tokens,
            vocab_size=model.vocab_size,
            max_logprobs=config.max_logprobs,
            scheduling_policy=config.scheduling_policy,
        )
        self.phases_s: dict[str, float] = {}
        """Seconds each phase of loading took; whoever loads enters them."""
        self._model = model
        self._ops = ops
        self._plan = plan
        self._draft = draft
        self._eos = frozenset(eos_token_ids)
        self._clock = clock
        self._draw_seed = draw_seed
        self._requests: dict[str, Request] = {}
        self._grammars = Grammars(
            vocabulary, vocab_size=model.vocab_size, num_tokens=min(num_tokens, model.vocab_size)
        )
        self._beside = Beside()
        self._deadlines = Deadlines()
        self._arrivals = 0
        self._leaving: list[Output] = []
        self._machine = machine
        self._steps = StepFigures()
        if config.populate_kv_cache:
            self._runner.populate(plan.num_blocks, wait=True)
            if draft is not None:
                draft.populate()
        self._kv_accounting_errors = 0
        self._flight: Flight | None = None
        self._entered_s = 0.0
        """When the results of a step were entered last."""

    @property
    def has_work(self) -> bool:
        """Whether anything runs, waits, is in flight or has a last word to say."""
        return bool(self._requests or self._leaving or self._flight)

    def submit(self, submit: Submit) -> None:
        """Queue a request. Raises RequestError, having changed nothing, where it is refused."""
        check_submit(submit, self.limits)
        if submit.request_id in self._requests:
            raise RequestError(
                f"request_id {submit.request_id!r} is in use; use another",
                param="request_id",
                code="duplicate_request_id",
            )
        params = submit.params
        num_prompt, limit = len(submit.prompt_token_ids), params.max_tokens
        request = Request(
            request_id=submit.request_id,
            token_ids=list(submit.prompt_token_ids),
            num_prompt=num_prompt,
            params=params,
            max_len=self.limits.context_tokens if limit is None else num_prompt + limit,
            end_ids=frozenset() if params.ignore_eos else self._eos,
            cache_salt=submit.cache_salt,
            seed=self._draw_seed() if params.seed is None else params.seed,
            priority=submit.priority,
            arrival=self._arrivals,
            arrived_s=self._clock(),
            thinking=None if params.thinking is None else Thinking(params.thinking, num_prompt),
            prompt_logprobs=None if params.prompt_logprobs is None else [None],
            reports_prefill=submit.report_prefill,
            draws_from_text=self._plans_ahead and depends_on_tokens(params),
        )
        if params.grammar is None or self._grammars.add(request, params.grammar):
            self.scheduler.submit(request)
        else:
            request.state = State.COMPILING
        self._arrivals += 1
        self._requests[request.request_id] = request
        if submit.timeout_s is not None:
            self._deadlines.add(request, request.arrived_s + submit.timeout_s)

    def cancel(self, request_id: str) -> None:
        """Give a request up: what it has is free at once, its last Output comes with the next step.

        Unknown ids and requests that have ended do nothing.
        """
        request = self._requests.get(request_id)
        if request is not None:
            self._dismiss(request, "abort")

    def reset_prefix_cache(self) -> int:
        """Forget every cached block that no request holds, and all past answers; how many blocks
        that were."""
        if self._speculation is not None:
            self._speculation.clear()
        return self.kv.forget_cached()

    def step(self, on_started: OnStarted | None = None) -> list[Output]:
        """Compute one step and return what it gave, with the last words of those that ended before.

        Where steps are planned ahead, one is begun and what the one before gave is returned.
        Requests past their deadline end first, wherever they are. on_started: called before the
        step computes, which may take seconds, with those that left the queue for the first time.
        """
        outputs = self._advance(on_started)
        # Behind the step: an engine that comes to rest has it done before the next request does.
        self._populate_ahead()
        self._deadlines.sweep(len(self._requests))
        if outputs and not self._requests:
            self._audit()
        return outputs

    def _advance(self, on_started: OnStarted | None) -> list[Output]:
        started_s = self._clock() if self._requests else 0.0
        for request in self._deadlines.passed(started_s):
            self._dismiss(request, "timeout")
        if self._grammars.num_waiting:
            self._admit_compiled()
        if self._beside.num_asking:
            self._let_back_in()
        outputs, self._leaving = self._leaving, []
        flight, self._flight = self._flight, None
        if flight is not None and not (self._requests and self.scheduler.can_plan_ahead()):
            return outputs + self._land(flight)
        if not self._requests:
            return outputs
        plan = self.scheduler.schedule(started_s)
        self._runner.copy(plan.copies)
        if plan.started and on_started is not None:
            on_started([started(request) for request in plan.started])
        for request in self.scheduler.sitting_out:
            self._beside.begin(request)
        if self._plans_ahead and plan.rows:
            step = self._runner.begin(plan.rows, None if flight is None else flight.step)
            if step is not None:
                self.scheduler.begin(plan)
                self._flight = Flight(plan, step, started_s)
                return outputs if flight is None else outputs + self._land(flight)
        if flight is not None:  # somebody needs results first, or there is nothing to begin
            outputs += self._land(flight)
            plan = plan.still_due()
            return outputs + self._run(plan, self._entered_s) if plan.rows else outputs
        if not plan.rows:
            if self._beside.num_asking:
                self._beside.wait(IDLE_WAIT_S)
                return outputs
            return outputs + (self._unblock() if self._has_scheduled else [])
        return outputs + self._run(plan, started_s)

    def _land(self, flight: Flight) -> list[Output]:
        """Enter what a step in flight gave, to those of its requests that still run."""
        plan, begun_s = flight.plan, max(flight.begun_s, self._entered_s)
        results = self._runner.read_or_none(flight.step)
        self.scheduler.take_back(plan)
        if results is not None:
            return self._enter(plan, results, begun_s, was_in_flight=True)
        if self._flight is not None:  # which went on from what is not there
            self.scheduler.take_back(self._flight.plan)
            self._flight = None
        plan = plan.still_due()
        return self._run(plan, begun_s) if plan.rows else []

    def _run(self, plan: StepPlan, started_s: float) -> list[Output]:
        """Compute a step, and enter what it gave."""
        short_before = self._memory.times_short
        results = self._runner.run(plan.rows)
        was_short = self._memory.times_short > short_before
        self._note_memory(results, was_short=was_short)
        return self._enter(plan, results, started_s, was_short=was_short)

    def _enter(
        self,
        plan: StepPlan,
        results: Sequence[RowResult],
        started_s: float,
        *,
        was_short: bool = False,
        was_in_flight: bool = False,
    ) -> list[Output]:
        """Enter what a step gave, and say it."""
        outputs: list[Output] = []
        cost = self._cost.of((row.start, row.num_tokens, row.num_logits) for row in plan.rows)
        load = None if plan.only_decodes else load_of(plan.rows)
        now_s = self._clock()
        self._entered_s = now_s
        # Of a step that was in flight requests may have ended since.
        runs = [row.request.state is State.RUNNING for row in plan.rows] if was_in_flight else None
        first = [row.request.first_token_s is None for row in plan.rows]
        lengths = [row.request.num_wanted for row in plan.rows]
        for row, (_, scores, _) in zip(plan.rows, results, strict=True):
            if row.request.prompt_logprobs is not None:
                row.request.prompt_logprobs.extend(scores)
        self.scheduler.complete(plan, [result.given for result in results], now_s)
        entered = zip(plan.rows, results, lengths, first, strict=True)
        for row, (tokens, *_), length, is_first in (
            entered if runs is None else compress(entered, runs)
        ):
            finished = row.request.state is State.FINISHED
            if tokens or finished:
                num_taken = row.request.num_wanted - length
                outputs.append(output(row.request, tokens, num_taken, is_first=is_first))
            elif row.request.reports_prefill and is_first:
                outputs.append(prefilled(row.request, now_s))
            if finished:
                del self._requests[row.request.request_id]
            elif row.request.sits_out:
                self._beside.begin(row.request)
        step_s = now_s - started_s
        self._steps.note(step_s, plan.num_tokens, cost, predicted_s=plan.limited_s)
        if was_short or self._runner.was_recorded:
            # What it took says nothing of other steps of its size.
            return outputs
        if load is not None:
            self._times.note(load, step_s)
        elif self._speculation is not None:
            self._speculation.note_step(len(plan.rows), plan.num_tokens, step_s)
        else:
            self._costs.note(len(plan.rows), plan.num_tokens, step_s)
        return outputs

    def _note_memory(self, results: Sequence[RowResult], *, was_short: bool) -> None:
        """Bound the next steps by what memory there was for this one."""
        memory = self._memory
        if not memory.times_short:
            return
        computed = not all(result.put_off for result in results)
        pause_s = memory.note_step(was_short=was_short, computed=computed)
        self.scheduler.most_chunk = memory.limit
        if pause_s:
            self._sleep(pause_s)

    def _populate_ahead(self) -> None:
        """Have memory ready of the blocks that the next step may take."""
        running = len(self.scheduler.running)
        self._runner.populate(self.kv.num_ready(self._step_tokens, running))
        if self._draft is not None:
            self._draft.populate_ahead(running)

    @property
    def _has_scheduled(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def _admit_compiled(self) -> None:
        """Queue those whose grammar is ready, in their own place by arrival; those whose grammar is
        refused end alone."""
        for request, error in self._grammars.compiled(idle=not self._has_scheduled):
            if error is None:
                self.scheduler.submit(request)
            else:
                code = error.code if isinstance(error, RequestError) else None
                self._dismiss(request, "error", SampledToken(error=str(error), error_code=code))

    def _let_back_in(self) -> None:
        """Let those go on of which it is known what may come next; those that have ended end."""
        for request, look in self._beside.settle(self._steps.last_s):
            if look.verdict == "ended":
                self._dismiss(request, "stop")
            elif request.num_wanted >= request.max_len:
                self._dismiss(request, "length")
            elif look.verdict == "failed":
                last = SampledToken(error=look.error, error_code=look.error_code)
                self._dismiss(request, "error", last)

    def stats(self) -> Stats:
        """Figures as of now; counters are totals since start."""
        return stats_of(
            self.scheduler,
            self._steps,
            speculation=self._speculation,
            num_compiling=self._grammars.num_waiting,
            draft_failures=0 if self._draft is None else self._draft.num_left_out,
            failed_steps=self._runner.failed_steps,
            out_of_memory_steps=self._memory.times_short,
            kv_accounting_errors=self._kv_accounting_errors,
            experts=self._ops.expert_cache_stats(),
        )

    def info(self) -> EngineInfo:
        """What this engine is."""
        return info_of(
            self._model,
            self._ops,
            self._plan,
            self.limits,
            kv=self.kv,
            machine=self._machine,
            phases_s=self.phases_s,
            draft=self._draft,
        )

    def warm_up(self) -> None:
        """Compute one token before the first request does: weights are read, kernels are ready, and
        decode steps are recorded where the backend does that.

        Raises HeadraceError where the model gives no usable logits. Only while there is no work.
        """
        probe = Request("warm-up", [0], 1, SamplingParams(temperature=0), max_len=2)
        probe.slot = 0
        probe.tables = [GroupTable([(0,) * group.num_tables]) for group in self.kv.groups]
        ((tokens, _, put_off),) = self._runner.run([Row(probe, 0, 1, True)])
        if put_off:
            raise HeadraceError(
                "there is no memory left for a step of one token: lower --gpu-memory-utilization "
                "or --max-num-batched-tokens, or see what else uses the device"
            )
        if tokens[0].error is not None:
            raise HeadraceError(f"the model does not work: {tokens[0].error}")
        self._populate_ahead()
        if self._records:
            self._recorded.record(self._records)
        if self._draft is not None:
            self._draft.warm_up(probe)

    def check(self) -> None:
        """AssertionError where blocks, holders or states do not add up; for tests, after a step."""
        self.kv.check(self.scheduler.running)
        if self._draft is not None:
            self._draft.cache.check()
        check_states(self.scheduler, self._grammars.waiting, self._requests.values())

    def _audit(self) -> None:
        """With nothing left to do every block is free or cached; count it where one is not."""
        for kv in [self.kv] if self._draft is None else [self.kv, self._draft.cache.kv]:
            self._kv_accounting_errors += not is_idle(kv)

    def _dismiss(
        self, request: Request, reason: FinishReason, last: SampledToken | None = None
    ) -> None:
        del self._requests[request.request_id]
        self._grammars.remove(request)
        self._beside.remove(request)
        self.scheduler.finish(request, reason)
        self._leaving.append(output(request, [last or SampledToken()], 0, is_first=False))

    def _unblock(self) -> list[Output]:
        """End the oldest request where nothing can move, which only wrong counts could bring."""
        logger.error("nothing could be scheduled: %s", self.stats())
        oldest = next(iter(self._requests.values()))
        self._dismiss(oldest, "error", SampledToken(error="the engine could not schedule it"))
        outputs, self._leaving = self._leaving, []
        return outputs
