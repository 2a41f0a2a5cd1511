"""Texts to one target after another until one makes vectors of all of them.

No streams and no commit point: what a target made before it failed is thrown away, and billed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.turns import NoTurnError, Turns
from headrace.gateway.serving.after_failure import Tried, class_of
from headrace.gateway.serving.backoff import wait_s
from headrace.gateway.serving.dispatch import NobodyAnsweredError, nobody_answered
from headrace.gateway.serving.embedding_asked import Asked
from headrace.gateway.serving.prepared import without_ours
from headrace.gateway.serving.scrub import without_secrets
from headrace.gateway.serving.serving import Serving
from headrace.gateway.settings.reliability import RetrySettings
from headrace.gateway.targets.auth import Credential, Outgoing
from headrace.gateway.targets.passing import EmbeddingPassing
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.tracing import Headers as TraceHeaders
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.neutral.dialect import DamagedReplyError, Written
from headrace.protocol.neutral.embedding import EmbeddingProvider, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

_S_PER_NS = 1e-9
_MOST_ERROR_BYTES = 1 << 20
# Nobody else likes such a request better.
_CLIENTS_OWN = ("stop", "context_fallback", "policy_fallback")


class Paid(NamedTuple):
    """What a target took for vectors it made. is_told: by the provider; else it is an estimate."""

    target: Target
    usage: TokenUsage
    is_told: bool


class Made(NamedTuple):
    """Vectors of all texts. body: of a provider of the client's dialect, to be passed on; the reply
    has usage alone then."""

    reply: EmbeddingReply
    candidate: Candidate
    body: bytes | None


@dataclass(slots=True, kw_only=True)
class EmbeddingDispatch:
    """One request's way from target to target. tokens: of all texts, about. paid: what is to be
    billed, whatever became of the request. attempts: those that were begun."""

    serving: Serving
    asked: Asked
    side_of: Callable[[Target], EmbeddingProvider | None]
    tokens: int
    tried: list[Tried] = field(default_factory=list)
    paid: list[Paid] = field(default_factory=list)
    attempts: int = 0
    waited_ns: int = 0
    _tries_at: dict[str, int] = field(default_factory=dict)

    async def first(self, candidates: Sequence[Candidate], retries: RetrySettings) -> Made:
        """All are asked before any is asked again. Raises NobodyAnsweredError, RequestError."""
        queue = deque(candidates)
        again: deque[tuple[Candidate, Failure]] = deque()
        while self.attempts < retries.attempts:
            candidate = queue.popleft() if queue else await self._after_a_wait(retries, again)
            if candidate is None:
                break
            try:
                return await self._at(candidate)
            except _FailedError as error:
                failed = class_of(error.failure)
                if failed.next in _CLIENTS_OWN:
                    break
                if failed.next == "other_key" and error.has_other_key:
                    queue.appendleft(candidate)
                elif failed.again:
                    again.append((candidate, error.failure))
        raise nobody_answered(self.tried, ())

    async def _after_a_wait(
        self, retries: RetrySettings, again: deque[tuple[Candidate, Failure]]
    ) -> Candidate | None:
        """One that failed for what a moment may mend, after that moment."""
        while again:
            candidate, failure = again.popleft()
            tries = self._tries_at[candidate.target.name]
            if tries >= retries.same_target:
                continue
            for_s = wait_s(retries, tries, failure.retry_after_s, self.serving.source)
            if for_s > retries.backoff_most_s:
                continue
            began_ns = self.serving.clock_ns()
            await asyncio.sleep(for_s)
            ended_ns = self.serving.clock_ns()
            self.waited_ns += ended_ns - began_ns
            if candidate.target.health.lets_through(ended_ns * _S_PER_NS):
                return candidate
        return None

    async def _at(self, candidate: Candidate) -> Made:
        """Raises _FailedError, which is noted then."""
        target, serving = candidate.target, self.serving
        turns = serving.router.turns
        if turns is not None and turns.is_full(target):
            await self._turn(turns, candidate)
        began_ns = serving.clock_ns()
        credential = target.provider.auth.pick(began_ns * _S_PER_NS)
        target.health.began(began_ns * _S_PER_NS)
        self.attempts += 1
        self._tries_at[target.name] = self._tries_at.get(target.name, 0) + 1
        trace = self.asked.trace.attempt(target)
        try:
            reply, body = await self._vectors(target, credential, trace.headers)
        except _FailedError as error:
            trace.failed(error.failure)
            error.has_other_key = self._note(target, credential, error.failure, began_ns)
            raise
        except BaseException:  # the client has gone, which says nothing of the target
            target.health.did_not_count(serving.clock_ns() * _S_PER_NS)
            raise
        finally:
            target.health.ended()
            self.waited_ns += serving.clock_ns() - began_ns
        target.health.succeeded(serving.clock_ns() * _S_PER_NS)
        self._pay(target, reply.usage, of=1)
        return Made(reply, candidate, body)

    async def _turn(self, turns: Turns, candidate: Candidate) -> None:
        """Raises NobodyAnsweredError. The place is taken as soon as this returns."""
        caller, began_ns = self.asked.caller, self.serving.clock_ns()
        try:
            await turns.wait([candidate], 0 if caller is None else caller.priority)
        except NoTurnError as error:
            failure = Failure(
                kind="server",
                message=f"no target is free: {candidate.target.name}: {error}",
                code="no_target_available",
                retry_after_s=1.0,
            )
            raise NobodyAnsweredError(503, failure, tuple(self.tried), ()) from None
        finally:
            self.waited_ns += self.serving.clock_ns() - began_ns
        turns.take(candidate)

    async def _vectors(
        self, target: Target, credential: Credential | None, trace: TraceHeaders
    ) -> tuple[EmbeddingReply, bytes | None]:
        provider, side = target.provider, self.side_of(target)
        assert side is not None
        if credential is None:
            rests_s = provider.auth.rests_s(self.serving.clock_ns() * _S_PER_NS)
            raise _FailedError(
                Failure(
                    kind="rate_limit",
                    message=f"all keys of {provider.name} rest",
                    retry_after_s=rests_s,
                )
            )
        try:
            async with asyncio.timeout(provider.first_token_s):
                passing = self._passing(target)
                if passing is not None:
                    written = self._passed(passing, target.model)
                    body = await self._send(target, credential, side, written, trace)
                    return EmbeddingReply(model="", vectors=(), usage=passing.usage(body)), body
                return await self._in_batches(target, credential, side, trace), None
        except TimeoutError:
            told = f"no answer within {provider.first_token_s:g} s"
            raise _FailedError(Failure(kind="timeout", message=told)) from None
        except UpstreamError as error:
            raise _FailedError(error.failure) from None
        except DamagedReplyError as error:
            failure = error.failure or Failure(kind="damaged", message=str(error))
            raise _FailedError(failure) from None

    async def _in_batches(
        self, target: Target, credential: Credential, side: EmbeddingProvider, trace: TraceHeaders
    ) -> EmbeddingReply:
        """As many requests as the provider needs. Batches that came are paid for, also where the
        next one fails or the client goes."""
        requests = side.write_embeddings(self.asked.call, target.model).requests
        bodies: list[bytes] = []
        try:
            for one in requests:
                bodies.append(await self._send(target, credential, side, one, trace))
            return side.read_embeddings(tuple(bodies))
        except BaseException:
            for body in bodies:
                with suppress(DamagedReplyError):
                    self._pay(target, side.read_embeddings((body,)).usage, of=len(requests))
            raise

    def _pay(self, target: Target, usage: TokenUsage | None, *, of: int) -> None:
        """of: in how many batches the texts were sent; this is one of them."""
        estimated = TokenUsage(input_tokens=-(-self.tokens // of))
        self.paid.append(Paid(target, usage or estimated, usage is not None))

    def _passing(self, target: Target) -> EmbeddingPassing | None:
        """None where the body has to be written anew, or the vectors of the reply have to."""
        passing = target.provider.embedding_passes.get(self.asked.dialect)
        if passing is None or self.asked.body is None:
            return None
        return passing if passing.base64 or not self.asked.call.base64 else None

    def _passed(self, passing: EmbeddingPassing, model: str) -> Written:
        assert self.asked.body is not None
        body = without_ours(self.asked.body, model)
        return Written(passing.path(model), {"content-type": "application/json"}, body)

    async def _send(
        self,
        target: Target,
        credential: Credential,
        side: EmbeddingProvider,
        written: Written,
        trace: TraceHeaders,
    ) -> bytes:
        provider = target.provider
        path = provider.base.joined(written.path)
        headers = (*written.headers.items(), *trace, *provider.headers)
        origin = provider.base.origin
        headers += await credential.headers(
            Outgoing("POST", origin.host_header, path, headers, written.body)
        )
        reply = await provider.pool.send(
            request_bytes("POST", origin, path, headers, written.body),
            target.timeouts or provider.timeouts,
        )
        try:
            if not 200 <= reply.status < 300:
                body = await reply.body(_MOST_ERROR_BYTES)
                failure = side.read_failure(reply.status, reply.headers, body)
                raise _FailedError(without_secrets(failure, headers))
            return await reply.body(self.serving.most_reply_bytes)
        finally:
            reply.abort()

    def _note(
        self, target: Target, credential: Credential | None, failure: Failure, began_ns: int
    ) -> bool:
        """Whether it is the key's fault and another one is left."""
        ended_ns = self.serving.clock_ns()
        now_s = ended_ns * _S_PER_NS
        self.tried.append(Tried(target.name, failure, (ended_ns - began_ns) * _S_PER_NS))
        if class_of(failure).blames and failure.kind != "rate_limit":
            cool_s = failure.retry_after_s if failure.kind == "overloaded" else None
            told = f"{failure.kind}: {failure.message[:120]}"
            target.health.failed(now_s, told, cool_s=cool_s)
        else:
            target.health.did_not_count(now_s)
        if credential is None:
            return False
        return target.provider.auth.failed(credential, failure, now_s)


class _FailedError(Exception):
    """has_other_key: whether the provider may be asked again with another one."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.has_other_key = False
