"""Targets asked one after another until one answers; who is next hangs on how the last one failed.

All candidates are asked before any is asked again. A client's own fault ends it at once. Nobody
has seen anything of an answer until this is over.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.errors import RequestError
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.decision import Candidate, Decision, LeftOut
from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.turns import NoTurnError, Turns
from headrace.gateway.serving.after_failure import CLASSES, Tried, class_of, summary
from headrace.gateway.serving.aside import Aside, unanswered_aside
from headrace.gateway.serving.attempt import AttemptFailedError, Opened, attempt
from headrace.gateway.serving.backoff import wait_s
from headrace.gateway.serving.hedge import race
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.sent import Sent, Unanswered
from headrace.gateway.telemetry.tracing import UNTRACED, RequestTrace
from headrace.protocol.neutral.failure import Failure

_S_PER_NS = 1e-9
# Told to who found no room to wait in, or waited too long: turns come as others end.
_TURN_AGAIN_S = 1.0


class NobodyAnsweredError(Exception):
    """failure: the one that says most; status: of our reply. tried: all of them. left_out: who was
    not asked."""

    def __init__(
        self, status: int, failure: Failure, tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]
    ) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure
        self.tried = tried
        self.left_out = left_out


@dataclass(slots=True)
class Dispatch:
    """One request's way from target to target. hedging: None where one is asked at a time. asides:
    what was paid for besides. hedge_won: whether the answer is of a target asked besides."""

    router: Router
    ask: Ask
    prepared: Prepared
    stream: bool
    drop_unsupported: bool
    most_reply_bytes: int
    clock_ns: Callable[[], int]
    source: random.Random
    trace: RequestTrace = UNTRACED
    hedging: Hedging | None = None
    asides: list[Aside] = field(default_factory=list)
    hedge_won: bool = False
    tried: list[Tried] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    ignored: tuple[str, ...] = ()
    waited_ns: int = 0
    _asking: tuple[Candidate, Sent] | None = None
    _attempts: int = 0
    _tries_at: dict[str, int] = field(default_factory=dict)
    _fell_back: set[str] = field(default_factory=set)

    @property
    def attempts(self) -> int:
        """Requests that were begun at targets."""
        return self._attempts

    def unanswered(self) -> Unanswered | None:
        """Who is asked just now, where that was sent; told once. Others who are asked besides are
        among `asides`."""
        asking, self._asking = self._asking, None
        if asking is None or asking[1].at_ns is None:
            return None
        return Unanswered(asking[0], asking[1].at_ns, self.ask.input_tokens)

    async def open(self, decision: Decision, route: Route) -> Opened:
        """The answer of the first target that has one. Raises NobodyAnsweredError, RequestError."""
        queue = deque(decision.candidates)
        busy: list[Candidate] = []
        again: list[tuple[Candidate, Failure]] = []
        self.left_out += decision.left_out
        turns = self.router.turns
        while self._attempts < route.retries.attempts:
            has_turn = False
            if queue:
                candidate = queue.popleft()
                if turns is not None and turns.is_full(candidate.target):
                    busy.append(candidate)
                    continue
            elif turns is not None and busy:
                candidate = await self._turn(turns, busy)
                busy.remove(candidate)
                has_turn = True
            else:
                waited = await self._after_a_wait(route, again)
                if waited is None:
                    break
                candidate = waited
            failures: list[tuple[Candidate, AttemptFailedError]] = []
            try:
                if has_turn and turns is not None:
                    opened = await self._at_turn(turns, candidate)
                elif self.hedging is None:
                    opened = await self._at(candidate)
                else:
                    opened, failures = await self._hedged(candidate, queue, route, self.hedging)
            except AttemptFailedError as error:
                opened, failures = None, [(candidate, error)]
            self._asking = None
            if opened is not None:
                self.ignored = opened.ready.dropped
                return opened
            for candidate, failure in failures:
                failed = class_of(failure.failure)
                if failed.next == "stop":
                    raise self._nobody()
                fallback = self._fallback(failed.next, candidate, route)
                if fallback is not None:
                    queue = deque(fallback.candidates)
                    self.left_out += fallback.left_out
                    again.clear()
                elif failed.next == "other_key" and self._has_other_key(candidate, failure):
                    queue.appendleft(candidate)
                elif failed.again:
                    again.append((candidate, failure.failure))
        raise self._nobody()

    async def _turn(self, turns: Turns, busy: list[Candidate]) -> Candidate:
        """Who is promised to this request. Raises NobodyAnsweredError."""
        began_ns = self.clock_ns()
        try:
            return await turns.wait(busy, self.ask.priority)
        except NoTurnError as error:
            for one in busy:
                self.left_out.append(LeftOut(one.target.name, one.model, str(error), _TURN_AGAIN_S))
            raise self._nobody() from None
        finally:
            self.waited_ns += self.clock_ns() - began_ns

    async def _at_turn(self, turns: Turns, candidate: Candidate) -> Opened | None:
        """As `_at`, at the place that was promised; nothing waits before it is taken."""
        health = candidate.target.health
        turns.take(candidate)
        attempts = self._attempts
        try:
            if not health.lets_through(self.clock_ns() * _S_PER_NS):
                self._leave_out(candidate, health.last_failure or "it failed too often")
                return None
            return await self._at(candidate)
        finally:
            if self._attempts == attempts:
                turns.freed(health)

    async def _hedged(
        self, first: Candidate, queue: deque[Candidate], route: Route, hedging: Hedging
    ) -> tuple[Opened | None, list[tuple[Candidate, AttemptFailedError]]]:
        """As `_at`, and others of the queue besides where it is slow."""

        def another(asked: list[Candidate]) -> Candidate | None:
            if self._attempts >= route.retries.attempts:
                return None
            names = {one.target.name for one in asked}
            turns, now_s = self.router.turns, self.clock_ns() * _S_PER_NS
            found = next(
                (
                    one
                    for one in queue
                    if one.target.name not in names
                    and (turns is None or not turns.is_full(one.target))
                    and self.router.refuses(one.target, self.ask, now_s) is None
                ),
                None,
            )
            if found is not None:
                queue.remove(found)
            return found

        async def at(candidate: Candidate, sent: Sent) -> Opened | None:
            return await self._at(candidate, sent, besides=candidate is not first)

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
        """None if the target cannot honour what is asked for. sent: told when it was. besides:
        whether another is waited for as well."""
        target = candidate.target
        try:
            ready = self.prepared.for_target(target)
        except RequestError as error:
            self._leave_out(candidate, str(error))
            if error.code == "translation":
                return None
            raise
        missing = tuple(one for one in ready.dropped if not one.startswith("extra."))
        strict = not self.drop_unsupported or self.ask.wanted.preferences.require_parameters
        if missing and strict:
            self._leave_out(candidate, f"it cannot honour {', '.join(missing)}")
            return None
        health = target.health
        began_ns = self.clock_ns()
        health.began(began_ns * _S_PER_NS)
        sent = Sent(self.clock_ns) if sent is None else sent
        if not besides:
            self._asking = candidate, sent
        self._attempts += 1
        self._tries_at[target.name] = self._tries_at.get(target.name, 0) + 1
        trace = self.trace.attempt(target)
        try:
            opened = await attempt(
                candidate,
                self.prepared,
                ready,
                stream=self.stream,
                most_reply_bytes=self.most_reply_bytes,
                clock_ns=self.clock_ns,
                now_s=began_ns * _S_PER_NS,
                trace_headers=trace.headers,
                sent=sent,
            )
        except AttemptFailedError as error:
            ended_ns = self.clock_ns()
            self.waited_ns += ended_ns - began_ns
            trace.failed(error.failure)
            health.ended()
            self._note(candidate, error, began_ns, ended_ns)
            if not besides:
                self._asking = None
            if error.no_reply and sent.at_ns is not None:
                unanswered = Unanswered(candidate, sent.at_ns, self.ask.input_tokens)
                self.asides.append(
                    unanswered_aside(unanswered, error.failure, ended_ns, stream=self.stream)
                )
            raise
        except BaseException:  # the client has gone, which says nothing of the target
            health.ended()
            health.did_not_count(self.clock_ns() * _S_PER_NS)
            raise
        self.waited_ns += opened.first_ns - opened.sent_ns
        return opened

    def _note(
        self, candidate: Candidate, error: AttemptFailedError, began_ns: int, ended_ns: int
    ) -> None:
        target, failure, now_s = candidate.target, error.failure, ended_ns * _S_PER_NS
        lasted_s = (ended_ns - began_ns) * _S_PER_NS
        self.tried.append(Tried(target.name, failure, lasted_s, error.was_sent, candidate.model))
        failed = class_of(failure)
        if failed.blames and failure.kind != "rate_limit":
            cool_s = failure.retry_after_s if failure.kind == "overloaded" else None
            target.health.failed(now_s, _told(failure), cool_s=cool_s)
        else:
            target.health.did_not_count(now_s)

    def _has_other_key(self, candidate: Candidate, error: AttemptFailedError) -> bool:
        if error.credential is None:
            return False
        now_s = self.clock_ns() * _S_PER_NS
        auth = candidate.target.provider.auth
        return auth.failed(error.credential, error.failure, now_s)

    def _fallback(self, kind: str, candidate: Candidate, route: Route) -> Decision | None:
        """Other models for what this one cannot take; each list is followed once."""
        if kind not in ("context_fallback", "policy_fallback") or kind in self._fell_back:
            return None
        self._fell_back.add(kind)
        own = self.router.route(candidate.model) or route
        names = own.context_fallbacks if kind == "context_fallback" else own.policy_fallbacks
        if not names:
            raise self._nobody()
        found = self.router.fallbacks(names, self.ask, self.clock_ns() * _S_PER_NS)
        if not found.candidates:
            raise self._nobody()
        return found

    async def _after_a_wait(
        self, route: Route, again: list[tuple[Candidate, Failure]]
    ) -> Candidate | None:
        """One that failed for what a moment may mend, after that moment."""
        while again:
            candidate, failure = again.pop(0)
            name = candidate.target.name
            tries = self._tries_at.get(name, 1)
            if tries >= route.retries.same_target:
                continue
            for_s = wait_s(route.retries, tries, failure.retry_after_s, self.source)
            if for_s > route.retries.backoff_most_s:
                continue
            began_ns = self.clock_ns()
            await asyncio.sleep(for_s)
            ended_ns = self.clock_ns()
            self.waited_ns += ended_ns - began_ns
            if candidate.target.health.lets_through(ended_ns * _S_PER_NS):
                return candidate
        return None

    def _leave_out(self, candidate: Candidate, reason: str) -> None:
        self.left_out.append(LeftOut(candidate.target.name, candidate.model, reason))

    def _nobody(self) -> NobodyAnsweredError:
        return nobody_answered(self.tried, self.left_out)


def nobody_answered(given: Sequence[Tried], without: Sequence[LeftOut]) -> NobodyAnsweredError:
    """given: all attempts. without: who was not asked."""
    tried, left_out = tuple(given), tuple(without)
    if not tried:
        return _nobody_to_ask(left_out)
    worst = _most_telling(tried)
    failed = class_of(worst)
    if failed.next in ("stop", "context_fallback", "policy_fallback"):
        return NobodyAnsweredError(failed.status, worst, tried, left_out)
    waits = [one.failure.retry_after_s for one in tried if one.failure.retry_after_s]
    ours = failed.next == "other_key" and worst.kind != "rate_limit"
    told = Failure(
        # A client has its own key, which is not at fault.
        kind="server" if ours else worst.kind,
        message=f"no target answered: {summary(tried)}",
        status=worst.status,
        code="upstream_credentials_exhausted" if ours else worst.code,
        retry_after_s=min(waits, default=None),
    )
    return NobodyAnsweredError(failed.status, told, tried, left_out)


def _most_telling(tried: tuple[Tried, ...]) -> Failure:
    """A client's own fault before all others, then what waiting helps, then the last."""
    for one in reversed(tried):
        if class_of(one.failure).next in ("stop", "context_fallback", "policy_fallback"):
            return one.failure
    for one in reversed(tried):
        if one.failure.kind in ("rate_limit", "overloaded"):
            return one.failure
    return tried[-1].failure


def _nobody_to_ask(left_out: tuple[LeftOut, ...]) -> NobodyAnsweredError:
    """Before anything was sent: every target was left out."""
    reasons = "; ".join(f"{one.target}: {one.reason}" for one in left_out[:8])
    waits = [one.for_s for one in left_out if one.for_s is not None]
    if not waits:
        failure = Failure(
            kind="bad_request",
            message=f"no target can serve this request: {reasons}",
            code="no_eligible_target",
        )
        return NobodyAnsweredError(CLASSES["bad_request"].status, failure, (), left_out)
    failure = Failure(
        kind="server",
        message=f"no target is free: {reasons}",
        code="no_target_available",
        retry_after_s=max(1.0, min(waits)),
    )
    return NobodyAnsweredError(CLASSES["overloaded"].status, failure, (), left_out)


def _told(failure: Failure) -> str:
    status = f" {failure.status}" if failure.status else ""
    return f"{failure.kind}{status}: {failure.message[:120]}"
