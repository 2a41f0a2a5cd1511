"""Targets tried for a chat, in the order of `rounds`, until one has content.

The client sees nothing of an answer until this is over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.errors import RequestError
from headrace.gateway.routing.decision import Candidate, Decision
from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.route import Route
from headrace.gateway.serving.aside import Aside, unanswered_aside
from headrace.gateway.serving.attempt import AttemptFailedError, Opened, attempt
from headrace.gateway.serving.hedge import race
from headrace.gateway.serving.parameter_support import UntranslatableError
from headrace.gateway.serving.prepared import Prepared, Ready
from headrace.gateway.serving.rounds import Rounds
from headrace.gateway.serving.sent import Sent, Unanswered, unanswered_of
from headrace.gateway.serving.settle import Took
from headrace.gateway.serving.stream_watch import most_stream_bytes
from headrace.gateway.telemetry.tracing import UNTRACED, RequestTrace
from headrace.http.large_bodies import LargeBodies

_S_PER_NS = 1e-9


@dataclass(slots=True, kw_only=True)
class Dispatch(Rounds[Opened]):
    """The failover of one chat request from target to target."""

    prepared: Prepared
    stream: bool
    most_reply_bytes: int
    large_bodies: LargeBodies
    """Where requests with large bodies are made."""
    trace: RequestTrace = UNTRACED
    hedging: Hedging | None = None
    """None if one target is tried at a time."""
    asides: list[Aside] = field(default_factory=list)
    """Billed calls beside the answer."""
    hedge_won: bool = False
    """Whether the answer comes from a hedge rather than the first target."""
    ignored: tuple[str, ...] = ()
    """Parameters that the target of the answer does not support."""
    _ready: dict[str, Ready | RequestError] = field(default_factory=dict)
    """Requests for targets that were put off, and those with a large body before they are sent."""
    _asking: tuple[Candidate, Sent] | None = None

    def unanswered(self) -> Unanswered | None:
        """The attempt under way, if it was sent; returned once. Hedges are among `asides`."""
        asking, self._asking = self._asking, None
        return None if asking is None else unanswered_of(*asking, self.ask.input_tokens)

    async def open(self, decision: Decision, route: Route) -> Opened:
        """As `first`, and record what the target ignores."""
        try:
            opened = await self.first(decision, route)
        finally:
            self._ready.clear()
        self._asking = None
        self.ignored = opened.ready.losses.all
        return opened

    async def _round(
        self, candidate: Candidate, queue: deque[Candidate], route: Route
    ) -> tuple[Opened | None, list[tuple[Candidate, AttemptFailedError]]]:
        if self.hedging is None:
            return await self._at(candidate), []
        return await self._hedged(candidate, queue, route, self.hedging)

    async def _prepare(self, candidate: Candidate) -> bool:
        name, prepared = candidate.target.name, self.prepared
        if name in self._ready or not prepared.is_large(self.large_bodies):
            return False
        self._ready[name] = await prepared.make(candidate.target, self.large_bodies)
        return True

    async def _hedged(
        self, first: Candidate, queue: deque[Candidate], route: Route, hedging: Hedging
    ) -> tuple[Opened | None, list[tuple[Candidate, AttemptFailedError]]]:
        """As `_at`, with hedges from the queue if the target is slow."""

        def another(tried: list[Candidate]) -> Candidate | None:
            if self.attempts >= self._most_attempts:
                return None
            names = {runner.target.name for runner in tried}
            turns, now_s = self.router.turns, self.clock_ns() * _S_PER_NS
            return next(
                (
                    waiting
                    for waiting in queue
                    if waiting.target.name not in names
                    and (turns is None or not turns.is_full(waiting.target))
                    and self.router.refuses(waiting.target, self.ask, now_s) is None
                ),
                None,
            )

        async def at(candidate: Candidate, sent: Sent) -> Opened | None:
            besides = candidate is not first
            if besides:
                queue.remove(candidate)
            return await self._at(candidate, sent, besides=besides)

        waited_ns, began_ns = self.waited_ns, self.clock_ns()
        ended = await race(
            first,
            another,
            at,
            hedging,
            input_tokens=self.ask.input_tokens,
            stream=self.stream,
            clock_ns=self.clock_ns,
            on_asides=self.asides.extend,
        )
        if ended.hedges:  # what ran side by side was waited for once
            self.waited_ns = waited_ns + self.clock_ns() - began_ns
        opened, self.hedge_won = ended.opened, ended.hedge_won
        if opened is not None:
            first_s = (opened.first_ns - opened.sent_ns) * _S_PER_NS
            hedging.had_first_token(first_s, stream=self.stream)
        return opened, ended.failures

    async def _at(
        self, candidate: Candidate, sent: Sent | None = None, *, besides: bool = False
    ) -> Opened | None:
        """`sent` is marked when the request goes out. `besides`: it is a hedge."""
        target = candidate.target
        ready = self._ready_for(candidate)
        if ready is None:
            return None
        began_ns = self._begin(candidate)
        sent = Sent(self.clock_ns) if sent is None else sent
        sent.service_tier, sent.is_open = ready.service_tier, ready.goes_on
        if not besides:
            self._asking = candidate, sent
        trace = self.trace.attempt(target)
        try:
            opened = await attempt(
                candidate,
                self.prepared,
                ready,
                stream=self.stream,
                most_reply_bytes=self.most_reply_bytes,
                most_stream_bytes=most_stream_bytes(
                    self.most_reply_bytes, self.ask.most_output_tokens, self.ask.choices
                ),
                clock_ns=self.clock_ns,
                now_s=began_ns * _S_PER_NS,
                trace_headers=trace.headers,
                sent=sent,
            )
        except AttemptFailedError as error:
            trace.failed(error.failure)
            ended_ns = self._failed(candidate, error, began_ns)
            if not besides:
                self._asking = None
            unanswered = unanswered_of(candidate, sent, self.ask.input_tokens)
            if error.no_reply and unanswered is not None:
                self._unheld.append(Took(candidate.model, unanswered.usage, unanswered.cost_nusd))
                self.asides.append(
                    unanswered_aside(unanswered, error.failure, ended_ns, stream=self.stream)
                )
            raise
        except BaseException:
            self._left(candidate)
            raise
        self.waited_ns += opened.first_ns - opened.sent_ns
        return opened

    def _ready_for(self, candidate: Candidate) -> Ready | None:
        """The request for a target; None if it is not tried now. Raises RequestError if the
        request is invalid."""
        target = candidate.target
        ready = self._ready.pop(target.name, None)
        try:
            if isinstance(ready, RequestError):
                raise ready
            if ready is None:
                ready = self.prepared.for_target(target)
        except UntranslatableError as error:
            self._cannot_take(candidate, error)
            return None
        except RequestError as error:
            self._leave_out(candidate, str(error))
            raise
        if self._may_try(candidate, ready.losses):
            return ready
        self._ready[target.name] = ready
        return None
