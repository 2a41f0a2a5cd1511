"""A service under a load: arrivals, pools of replicas, what scales them and what breaks them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from headrace.plan.simulation.arrival import Arrival, PromptWriter, own_token
from headrace.plan.simulation.autoscaler import Autoscaler, Scaling
from headrace.plan.simulation.call import Call
from headrace.plan.simulation.events import EventQueue
from headrace.plan.simulation.finished import Finished
from headrace.plan.simulation.pool import Pool
from headrace.plan.simulation.replica import Phase, Replica
from headrace.plan.simulation.routing import router_of
from headrace.plan.simulation.series import Point, Sampler
from headrace.plan.simulation.settings import Role, SimulationSettings

OnProgress = Callable[[float, int], None]
"""Called now and then with the second that is simulated and the requests that have ended."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The events of a simulated run."""

    finished: Finished
    arrived: int
    refused: int
    """They need more blocks than there are."""
    retries: int
    preemptions: int
    end_s: float
    """End of the last request."""
    replicas: tuple[Replica, ...]
    points: tuple[Point, ...]
    decisions: tuple[Scaling, ...]
    failures: tuple[tuple[float, int], ...]
    """Seconds and numbers of replicas that broke."""


class Service:
    """One run of a simulation; used once."""

    def __init__(
        self,
        settings: SimulationSettings,
        arrivals: Iterable[Arrival],
        on_progress: OnProgress | None = None,
    ) -> None:
        """arrivals: in order of time."""
        self._settings = settings
        self._arrivals = iter(arrivals)
        self._on_progress = on_progress
        self._events = EventQueue()
        self._writer = PromptWriter()
        self._finished = Finished(settings.engine.latency.request_s)
        self._open = self._arrived = self._refused = self._retries = self._preemptions = 0
        self._is_over = False
        self._failures: list[tuple[float, int]] = []
        self._failure_source = random.Random(f"{settings.seed}:failures")
        self._pools = self._made_pools()
        self._front = self._pools[0]
        self._scalers: list[Autoscaler] = []
        if settings.autoscale is not None:
            source = random.Random(f"{settings.seed}:cold starts")
            self._scalers = [Autoscaler(settings.autoscale, one, source) for one in self._pools]
        self._sampler = Sampler(self._pools)

    def run(self) -> Run:
        """Until the last request has ended."""
        settings, events = self._settings, self._events
        self._next_arrival()
        self._every(settings.sample_s, self._sample, first_s=0.0)
        if settings.autoscale is not None:
            self._every(settings.autoscale.interval_s, self._scale)
        self._plan_failures()
        while not (self._is_over and not self._open):
            events.step()
        end_s = events.now_s
        self._sample(end_s)
        everyone = tuple(one for pool in self._pools for one in pool.replicas)
        for one in everyone:
            if one.phase is not Phase.GONE:
                one.gone_s = end_s
                one.finish()
        for pool in self._pools:
            if pool.role == "decode":
                for one in pool.replicas:  # what was sent to it is no prompt that it looked up
                    one.query_tokens = one.hit_tokens = 0
        return Run(
            finished=self._finished,
            arrived=self._arrived,
            refused=self._refused,
            retries=self._retries,
            preemptions=sum(one.preemptions for one in everyone),
            end_s=end_s,
            replicas=everyone,
            points=tuple(self._sampler.points),
            decisions=tuple(one for scaler in self._scalers for one in scaler.decisions),
            failures=tuple(self._failures),
        )

    def _made_pools(self) -> list[Pool]:
        split = self._settings.disaggregation
        if split is None:
            return [self._pool("all", self._settings.replicas)]
        return [
            self._pool("prefill", split.prefill_replicas),
            self._pool("decode", split.decode_replicas),
        ]

    def _pool(self, role: Role, replicas: int) -> Pool:
        settings = self._settings
        engine = settings.engine
        if role == "decode":
            # A cache that was sent is found as a prefix.
            engine = replace(engine, prefix_caching=True)
        router = router_of(settings.routing, engine.kv_tokens)
        sends = {"all": self._send_whole, "prefill": self._send_prompt, "decode": self._send_rest}
        ends = {"all": self._ended, "prefill": self._prompt_read, "decode": self._ended}
        return Pool(role, replicas, engine, self._events, router, sends[role], ends[role])

    def _every(
        self, seconds: float, act: Callable[[float], None], first_s: float | None = None
    ) -> None:
        def again(now_s: float) -> None:
            act(now_s)
            self._events.at(now_s + seconds, again)

        self._events.at(seconds if first_s is None else first_s, again)

    def _sample(self, now_s: float) -> None:
        self._sampler.take(now_s, len(self._finished))
        if self._on_progress is not None:
            self._on_progress(now_s, len(self._finished))

    def _scale(self, now_s: float) -> None:
        for scaler in self._scalers:
            scaler.decide(now_s)

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is None:
            self._is_over = True
            return

        def come(now_s: float) -> None:
            self._come(arrival, now_s)
            self._next_arrival()

        self._events.at(arrival.at_s, come)

    def _come(self, arrival: Arrival, now_s: float) -> None:
        call = Call(self._arrived, arrival)
        self._arrived += 1
        any_replica = self._front.replicas[0]
        if not any_replica.holds(arrival.prompt_tokens + arrival.output_tokens):
            self._refused += 1
            return
        self._open += 1
        self._front.take(call, now_s)

    def _send_whole(self, replica: Replica, call: Call, now_s: float) -> None:
        tokens = self._writer.prompt(call.arrival, call.number)
        replica.submit(call, tokens, call.arrival.output_tokens, now_s)

    def _send_prompt(self, replica: Replica, call: Call, now_s: float) -> None:
        tokens = self._writer.prompt(call.arrival, call.number)
        replica.submit(call, tokens, 1, now_s)

    def _send_rest(self, replica: Replica, call: Call, now_s: float) -> None:
        tokens = self._writer.prompt(call.arrival, call.number)
        tokens.append(own_token(call.number))
        replica.submit(call, tokens, call.arrival.output_tokens - 1, now_s, landed=True)

    def _prompt_read(self, replica: Replica, call: Call, now_s: float) -> None:
        split = self._settings.disaggregation
        assert split is not None
        self._pools[0].let_go(replica, now_s)
        if call.arrival.output_tokens == 1:
            self._close(call, now_s)
            return
        seconds = split.transfer_s(call.arrival.prompt_tokens)
        call.transfer_s += seconds
        self._events.at(now_s + seconds, lambda at_s: self._pools[1].take(call, at_s))

    def _ended(self, replica: Replica, call: Call, now_s: float) -> None:
        self._pools[-1].let_go(replica, now_s)
        self._close(call, now_s)

    def _close(self, call: Call, now_s: float) -> None:
        call.finished_s = now_s
        ttft_s = self._finished.add(call)
        self._open -= 1
        for scaler in self._scalers:
            scaler.note_ttft(now_s, ttft_s)

    def _plan_failures(self) -> None:
        plan = self._settings.failures
        if plan is None:
            return
        for second, number in plan.at:
            self._events.at(second, partial(self._break, number))
        if plan.mtbf_s is not None:
            self._next_failure()

    def _next_failure(self) -> None:
        """Of any of those that are there, each with the same rate."""
        plan = self._settings.failures
        assert plan is not None
        assert plan.mtbf_s is not None
        there = sum(len(pool.paid_for) for pool in self._pools)
        wait_s = self._failure_source.expovariate(max(1, there) / plan.mtbf_s)

        def strike(now_s: float) -> None:
            everyone = [one for pool in self._pools for one in pool.paid_for]
            if everyone:
                self._lose(self._failure_source.choice(everyone), now_s)
            self._next_failure()

        self._events.at(self._events.now_s + wait_s, strike)

    def _break(self, number: int, now_s: float) -> None:
        everyone = [one for pool in self._pools for one in pool.replicas]
        if number < len(everyone):
            self._lose(everyone[number], now_s)

    def _lose(self, replica: Replica, now_s: float) -> None:
        plan = self._settings.failures
        assert plan is not None
        if replica.phase not in (Phase.READY, Phase.DRAINING):
            return
        pool = next(one for one in self._pools if replica in one.replicas)
        self._failures.append((now_s, replica.number))
        for call in pool.fail(replica, plan.mttr_s, now_s):
            call.begin_again()
            self._retries += 1
            self._front.take(call, now_s)
