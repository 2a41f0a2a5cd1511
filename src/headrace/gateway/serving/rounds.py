"""The failover loop: which target is tried next until one answers, for chats and embeddings.

All candidates are tried before any is tried again; of one model those that ignore hints of the
request after those that ignore nothing. Busy ones are waited for once the others have been tried.
A client's own fault ends the loop at once.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace.gateway.routing.decision import Candidate, Decision, LeftOut
from headrace.gateway.routing.eligible import Reason
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.turns import NoTurnError, Turns
from headrace.gateway.serving.after_failure import Tried, class_of
from headrace.gateway.serving.attempt import AttemptFailedError
from headrace.gateway.serving.backoff import requested_wait_s, wait_s
from headrace.gateway.serving.holding import Holding
from headrace.gateway.serving.parameter_support import (
    TRANSLATION,
    UntranslatableError,
    why_skipped,
)
from headrace.gateway.serving.settle import Took
from headrace.gateway.serving.target_failures import AllTargetsFailedError, nobody_answered
from headrace.gateway.settings.reliability import Unsupported
from headrace.gateway.targets.auth import failure_summary
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.losses import Losses

_S_PER_NS = 1e-9
# Retry time if there was no room to wait in, or the wait was too long: turns come as others end.
_TURN_AGAIN_S = 1.0
# Attempts if `retries.attempts` is not set: with fewer targets, and with more keys.
_ATTEMPTS = 4
_ATTEMPTS_WITH_KEYS = 20

Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class Rounds(ABC, Generic[Answer]):
    """The failover of one request from target to target."""

    router: Router
    ask: RoutingQuery
    clock_ns: Callable[[], int]
    source: random.Random
    unsupported: Unsupported = "drop_hints"
    """What becomes of parameters that a target does not support."""
    holding: Holding | None = None
    """None if no budget is held for it."""
    tried: list[Tried] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    waited_ns: int = 0
    """Time spent waiting for providers."""
    attempts: int = 0
    """Attempts begun."""
    _unheld: list[Took] = field(default_factory=list)
    _no_room: Reason | None = None
    _most_attempts: int = 0
    _unasked: int = 0
    _put_off: list[Candidate] = field(default_factory=list)
    _untranslatable: UntranslatableError | None = None
    _hints_may_drop: set[str] = field(default_factory=set)
    """Models of which all targets that ignore nothing have been tried."""
    _tries_at: dict[str, int] = field(default_factory=dict)
    _keys_left: dict[str, int] = field(default_factory=dict)
    _followed: dict[str, tuple[LeftOut, ...]] = field(default_factory=dict)

    @abstractmethod
    async def _at(self, candidate: Candidate) -> Answer | None:
        """Try a target; None if it cannot honour the request. Implementations call `_begin`, and
        `_failed` or `_left` if no answer comes. Raises AttemptFailedError, RequestError."""

    async def _round(
        self, candidate: Candidate, queue: deque[Candidate], route: Route
    ) -> tuple[Answer | None, list[tuple[Candidate, AttemptFailedError]]]:
        """As `_at`, but others of the queue may be tried besides; also returns the failures.
        Raises AttemptFailedError of the candidate, RequestError."""
        return await self._at(candidate), []

    async def _prepare(self, candidate: Candidate) -> bool:
        """Do work on a large body that `_at` would do, when it is its turn; whether there was any,
        so that others may have been served meanwhile."""
        return False

    def able(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """The candidates that can give such an answer at all."""
        return candidates

    async def first(self, decision: Decision, route: Route) -> Answer:
        """The first answer of a target. Raises AllTargetsFailedError, RequestError."""
        try:
            return await self._first(decision, route)
        except AllTargetsFailedError as error:
            only = self._untranslatable
            if only is None or error.tried or len(self.left_out) > 1 or only.code == TRANSLATION:
                raise
            raise only from None  # its field and code say more

    async def _first(self, decision: Decision, route: Route) -> Answer:
        queue = deque(decision.candidates)
        busy: list[Candidate] = []
        again: deque[tuple[Candidate, Failure]] = deque()
        self.left_out += decision.left_out
        turns = self.router.turns
        own_limit = route.retries.attempts
        self._most_attempts = own_limit or max(_ATTEMPTS, len(queue))
        while self.attempts < self._most_attempts:
            if self._unheld and self.holding is not None:
                self._no_room = await self.holding.take_again(self._unheld)
                if self._no_room is not None:
                    break
                self._unheld.clear()
            has_turn = False
            self._take_put_off(queue)
            if queue:
                candidate = queue.popleft()
                full = turns is not None and turns.is_full(candidate.target)
                if not full and await self._prepare(candidate):
                    full = turns is not None and turns.is_full(candidate.target)
                if full:
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
                    answer = await self._at_turn(turns, candidate)
                else:
                    answer, failures = await self._round(candidate, queue, route)
            except AttemptFailedError as error:
                answer, failures = None, [(candidate, error)]
            if answer is not None:
                self._rest_keys(failures)
                return answer
            for candidate, failure in failures:
                failed = class_of(failure.failure)
                if failed.next == "stop":
                    raise self._nobody()
                fallback = self._fallback(failed.next, candidate, route)
                if fallback is not None:
                    names = {other.target.name for other in fallback.candidates}
                    for passed in (*queue, *self._put_off):
                        if passed.target.name not in names:
                            why = f"the fallbacks of {candidate.model} replaced it"
                            self._leave_out(passed, why)
                    queue = deque(fallback.candidates)
                    self._put_off.clear()
                    if own_limit is None:
                        self._most_attempts = max(self._most_attempts, self.attempts + len(queue))
                    self.left_out += fallback.left_out
                    again.clear()
                elif self._has_other_key(candidate, failure) and (
                    own_limit is not None
                    or self.attempts + len(queue) + len(busy) < _ATTEMPTS_WITH_KEYS
                ):
                    self._tries_at[candidate.target.name] -= 1  # it was that key's first try
                    queue.appendleft(candidate)
                    if own_limit is None:
                        self._most_attempts += 1
                elif failed.again:
                    again.append((candidate, failure.failure))
        if self.attempts >= self._most_attempts:
            names = {attempt.target for attempt in self.tried}
            waiting = (*queue, *self._put_off, *busy)
            self._unasked = len({candidate.target.name for candidate in waiting} - names)
        raise self._nobody()

    async def _turn(self, turns: Turns, busy: list[Candidate]) -> Candidate:
        """Wait for a turn at one of the busy targets. Raises AllTargetsFailedError."""
        began_ns = self.clock_ns()
        try:
            return await turns.wait(busy, self.ask.priority)
        except NoTurnError as error:
            for candidate in busy:
                self.left_out.append(
                    LeftOut(candidate.target.name, candidate.model, str(error), _TURN_AGAIN_S)
                )
            raise self._nobody() from None
        finally:
            self.waited_ns += self.clock_ns() - began_ns

    async def _at_turn(self, turns: Turns, candidate: Candidate) -> Answer | None:
        """As `_at`, with the turn that was granted; nothing waits before it is taken."""
        health = candidate.target.health
        turns.take(candidate)
        attempts = self.attempts
        try:
            if not health.lets_through(self.clock_ns() * _S_PER_NS):
                self._leave_out(candidate, health.failed_for or "it failed too often")
                return None
            return await self._at(candidate)
        finally:
            if self.attempts == attempts:
                turns.freed(health)

    def _begin(self, candidate: Candidate) -> int:
        """Record that an attempt begins; return the time."""
        target, began_ns = candidate.target, self.clock_ns()
        target.health.began(began_ns * _S_PER_NS)
        self.attempts += 1
        self._tries_at[target.name] = self._tries_at.get(target.name, 0) + 1
        return began_ns

    def _failed(self, candidate: Candidate, error: AttemptFailedError, began_ns: int) -> int:
        """Record that an attempt ended without an answer; return the time."""
        target, failure, ended_ns = candidate.target, error.failure, self.clock_ns()
        self.waited_ns += ended_ns - began_ns
        target.health.ended()
        lasted_s, now_s = (ended_ns - began_ns) * _S_PER_NS, ended_ns * _S_PER_NS
        self.tried.append(Tried(target.name, failure, lasted_s, error.was_sent, candidate.model))
        failed = class_of(failure)
        if failed.blames:
            cool_s = failure.retry_after_s if failure.kind == "overloaded" else None
            target.health.failed(now_s, _told(failure), cool_s=cool_s)
        else:
            target.health.did_not_count(now_s)
        return ended_ns

    def _left(self, candidate: Candidate) -> None:
        """Record an attempt that was given up, as the client left; the target is not at fault."""
        health = candidate.target.health
        health.ended()
        health.did_not_count(self.clock_ns() * _S_PER_NS)

    def _has_other_key(self, candidate: Candidate, error: AttemptFailedError) -> bool:
        """Whether it failed because of its key, and another key may be tried."""
        kind = class_of(error.failure).next
        if error.credential is None or kind not in ("other_key", "other_account"):
            return False
        target, now_s = candidate.target, self.clock_ns() * _S_PER_NS
        auth = target.provider.auth
        others = auth.others(error.credential, now_s, target.model)
        left = self._keys_left.get(target.name)
        left = others if left is None else left - 1
        self._keys_left[target.name] = left
        if kind == "other_key":
            return auth.failed(error.credential, error.failure, now_s, target.model) and left > 0
        return left > 0 and others > 0

    def _rest_keys(self, failures: list[tuple[Candidate, AttemptFailedError]]) -> None:
        """Let keys rest that were refused while another target answered."""
        now_s = self.clock_ns() * _S_PER_NS
        for candidate, error in failures:
            target, failure = candidate.target, error.failure
            if error.credential is not None and class_of(failure).next == "other_key":
                target.provider.auth.failed(error.credential, failure, now_s, target.model)

    def _fallback(self, kind: str, candidate: Candidate, route: Route) -> Decision | None:
        """Other models for a request that this one cannot take; each list is used once. Raises
        AllTargetsFailedError if there are none."""
        if kind not in ("context_fallback", "policy_fallback") or kind in self._followed:
            return None
        own = self.router.route(candidate.model) or route
        names = own.context_fallbacks if kind == "context_fallback" else own.policy_fallbacks
        if not names:
            raise self._nobody()
        found = self.router.fallbacks(names, self.ask, self.clock_ns() * _S_PER_NS)
        self._followed[kind] = found.left_out
        able = self.able(found.candidates)
        if not able:
            raise self._nobody()
        return found._replace(candidates=able)

    async def _after_a_wait(
        self, route: Route, again: deque[tuple[Candidate, Failure]]
    ) -> Candidate | None:
        """A target worth a second try, after its wait; the shortest wait first."""
        while again:
            now_s = self.clock_ns() * _S_PER_NS
            waits_s = [
                requested_wait_s(candidate.target, failure, now_s) for candidate, failure in again
            ]
            at = waits_s.index(min(waits_s))
            candidate, _ = again[at]
            del again[at]
            tries = self._tries_at.get(candidate.target.name, 1)
            if tries >= route.retries.same_target:
                continue
            for_s = wait_s(route.retries, tries, waits_s[at], self.source)
            if for_s > route.retries.backoff_max_s:
                continue
            began_ns = self.clock_ns()
            await asyncio.sleep(for_s)
            ended_ns = self.clock_ns()
            self.waited_ns += ended_ns - began_ns
            if candidate.target.health.lets_through(ended_ns * _S_PER_NS):
                self._keys_left.pop(candidate.target.name, None)
                return candidate
        return None

    def _may_try(self, candidate: Candidate, losses: Losses) -> bool:
        """Whether a target with these losses may be tried now. Otherwise it is skipped, or put off
        until others of its model, which may ignore nothing, have been tried."""
        if not losses.all:
            return True
        require_parameters = self.ask.wanted.preferences.require_parameters
        why = why_skipped(losses, self.unsupported, require_parameters=require_parameters)
        if why is not None:
            self._leave_out(candidate, why, by_request=True)
            return False
        if candidate.model in self._hints_may_drop:
            return True
        self._put_off.append(candidate)
        return False

    def _cannot_take(self, candidate: Candidate, error: UntranslatableError) -> None:
        """Skip a target whose dialect cannot express the request."""
        self._untranslatable = error
        self._leave_out(candidate, str(error), by_request=True)

    def _take_put_off(self, queue: deque[Candidate]) -> None:
        """Let those that were put off be next, once no others of their model are left."""
        if not self._put_off:
            return
        model = self._put_off[0].model
        if any(candidate.model == model for candidate in queue):
            return
        self._hints_may_drop.add(model)
        of_model = [candidate for candidate in self._put_off if candidate.model == model]
        self._put_off = [candidate for candidate in self._put_off if candidate.model != model]
        queue.extendleft(reversed(of_model))

    def _leave_out(self, candidate: Candidate, reason: str, *, by_request: bool = False) -> None:
        self.left_out.append(
            LeftOut(candidate.target.name, candidate.model, reason, by_request=by_request)
        )

    def _nobody(self) -> AllTargetsFailedError:
        return nobody_answered(
            self.tried, self.left_out, followed=self._followed, no_room=self._no_room,
            unasked=self._unasked,
        )  # fmt: skip


def _told(failure: Failure) -> str:
    return f"{failure_summary(failure)}: {failure.message[:120]}"
