"""Embeddings: texts to the first target that makes vectors of them.

No streams and no commit point: a target that fails in the middle is left for the next one, and what
it made is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.caller import Actual, Demand
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.preferences import read_wanted
from headrace.gateway.routing.turns import NoTurnError, Turns
from headrace.gateway.routing.variants import Who
from headrace.gateway.serving.after_failure import Tried, class_of, summary
from headrace.gateway.serving.attempt_entries import failed_attempts
from headrace.gateway.serving.bill import cost_nusd, most_nusd
from headrace.gateway.serving.dispatch import NobodyAnsweredError
from headrace.gateway.serving.embedding_asked import Asked, Embedded
from headrace.gateway.serving.entry import Entry, Outcome
from headrace.gateway.serving.prepared import without_ours
from headrace.gateway.serving.refusals import refusal_of
from headrace.gateway.serving.scrub import without_secrets
from headrace.gateway.serving.serve import Serving
from headrace.gateway.targets.auth import Credential, Outgoing
from headrace.gateway.targets.passing import EmbeddingPassing
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.tracing import Headers as TraceHeaders
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.neutral.dialect import DamagedReplyError, Written
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingProvider, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

_S_PER_NS = 1e-9
_MS_PER_NS = 1e-6
_BYTES_PER_TOKEN = 3
_MOST_ERROR_BYTES = 1 << 20
# Nobody else likes such a request better.
_CLIENTS_OWN = ("stop", "context_fallback", "policy_fallback")


def embeddings_of(target: Target) -> EmbeddingProvider | None:
    """How the target makes embeddings; None for one that does not."""
    return target.provider.embeddings


async def embed(
    serving: Serving, asked: Asked, side_of: Callable[[Target], EmbeddingProvider | None]
) -> Embedded:
    """Raises RequestError, AccountsError, NobodyAnsweredError; a line of the ledger is written."""
    course = _Course(serving, asked, side_of)
    try:
        return await course.run()
    except asyncio.CancelledError:
        course.outcome = "client_gone"
        raise
    except NobodyAnsweredError as error:
        course.status, course.error = error.status, str(error)
        raise
    except RequestError as error:
        course.outcome, course.status, course.error = "refused", 400, str(error)
        raise
    except AccountsError as error:
        course.outcome, course.status, course.error = "refused", refusal_of(error)[0], str(error)
        raise
    finally:
        course.close()


class _Course:
    def __init__(
        self,
        serving: Serving,
        asked: Asked,
        side_of: Callable[[Target], EmbeddingProvider | None],
    ) -> None:
        self._serving = serving
        self._asked = asked
        self._side_of = side_of
        self._tried: list[Tried] = []
        self._target: Target | None = None
        self._usage: TokenUsage | None = None
        self._told = False
        self._cost: int | None = None
        self._waited_ns = 0
        self._arrived_s = serving.wall_s()
        self.outcome: Outcome = "failed"
        self.status = 0
        self.error = ""

    async def run(self) -> Embedded:
        call, serving = self._asked.call, self._serving
        if self._asked.refusal is not None:
            raise self._asked.refusal
        tokens = _estimated(call)
        caller = self._asked.caller
        policy = DataPolicy() if caller is None else caller.data_policy
        ask = Ask(
            wanted=read_wanted(call.model, {}),
            input_tokens=tokens,
            regions=policy.regions,
            no_retention=policy.zero_retention,
            keeps_no_data=policy.data_collection == "deny",
            who=Who(
                user=None if caller is None else caller.user,
                key=None if caller is None else caller.key_id,
                request=self._asked.id,
            ),
        )
        check_models(self._asked.caller, ask.wanted.models)
        decision = serving.router.decide(ask, serving.clock_ns() * _S_PER_NS)
        candidates = [one for one in decision.candidates if self._side_of(one.target) is not None]
        if not candidates:
            raise RequestError(
                f"model {call.model}: none of its targets makes embeddings",
                param="model",
                code="unsupported_model",
            )
        held = None
        if serving.accounts is not None and self._asked.caller is not None:
            costs = [most_nusd(one.target.price, tokens, 0) for one in candidates]
            known = [one for one in costs if one is not None]
            held = await serving.accounts.reserve(
                self._asked.caller,
                Demand(
                    model=call.model,
                    input_tokens=tokens,
                    most_cost_nusd=max(known) if len(known) == len(costs) else None,
                ),
            )
        try:
            embedded = await self._first(candidates, tokens)
        except BaseException:
            if held is not None:
                await asyncio.shield(held.release())
            raise
        if held is not None:
            assert self._usage is not None
            await asyncio.shield(
                held.settle(Actual(input_tokens=self._usage.prompt_tokens, cost_nusd=self._cost))
            )
        return embedded

    async def _first(self, candidates: list[Candidate], tokens: int) -> Embedded:
        for candidate in candidates:
            target = candidate.target
            turns = self._serving.router.turns
            if turns is not None and turns.is_full(target):
                await self._turn(turns, candidate)
            began_ns = self._serving.clock_ns()
            now_s = began_ns * _S_PER_NS
            credential = target.provider.auth.pick(now_s)
            target.health.began(now_s)
            trace = self._asked.trace.attempt(target)
            try:
                reply, body = await self._at(target, credential, trace.headers)
            except _FailedError as error:
                trace.failed(error.failure)
                self._note(target, credential, error.failure, began_ns)
                if class_of(error.failure).next in _CLIENTS_OWN:
                    break
                continue
            except BaseException:
                target.health.did_not_count(self._serving.clock_ns() * _S_PER_NS)
                raise
            finally:
                target.health.ended()
                self._waited_ns += self._serving.clock_ns() - began_ns
            target.health.succeeded(self._serving.clock_ns() * _S_PER_NS)
            self._target, self._told = target, reply.usage is not None
            self._usage = reply.usage or TokenUsage(input_tokens=tokens)
            self._cost = cost_nusd(self._usage, target.price)
            self.outcome, self.status = "answered", 200
            attempts = len(self._tried) + 1
            return Embedded(reply, target, candidate.model, attempts, self._cost, body)
        raise self._nobody()

    async def _turn(self, turns: Turns, candidate: Candidate) -> None:
        """Raises NobodyAnsweredError. The place is taken as soon as this returns."""
        caller, began_ns = self._asked.caller, self._serving.clock_ns()
        try:
            await turns.wait([candidate], 0 if caller is None else caller.priority)
        except NoTurnError as error:
            failure = Failure(
                kind="server",
                message=f"no target is free: {candidate.target.name}: {error}",
                code="no_target_available",
                retry_after_s=1.0,
            )
            raise NobodyAnsweredError(503, failure, tuple(self._tried), ()) from None
        finally:
            self._waited_ns += self._serving.clock_ns() - began_ns
        turns.take(candidate)

    async def _at(
        self, target: Target, credential: Credential | None, trace: TraceHeaders
    ) -> tuple[EmbeddingReply, bytes | None]:
        provider, side = target.provider, self._side_of(target)
        assert side is not None
        if credential is None:
            rests_s = provider.auth.rests_s(self._serving.clock_ns() * _S_PER_NS)
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
                requests = side.write_embeddings(self._asked.call, target.model).requests
                bodies = [
                    await self._send(target, credential, side, one, trace) for one in requests
                ]
            return side.read_embeddings(tuple(bodies)), None
        except TimeoutError:
            told = f"no answer within {provider.first_token_s:g} s"
            raise _FailedError(Failure(kind="timeout", message=told)) from None
        except UpstreamError as error:
            raise _FailedError(error.failure) from None
        except DamagedReplyError as error:
            failure = error.failure or Failure(kind="damaged", message=str(error))
            raise _FailedError(failure) from None

    def _passing(self, target: Target) -> EmbeddingPassing | None:
        """None where the body has to be written anew, or the vectors of the reply have to."""
        passing = target.provider.embedding_passes.get(self._asked.dialect)
        if passing is None or self._asked.body is None:
            return None
        return passing if passing.base64 or not self._asked.call.base64 else None

    def _passed(self, passing: EmbeddingPassing, model: str) -> Written:
        assert self._asked.body is not None
        body = without_ours(self._asked.body, model)
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
            return await reply.body(self._serving.most_reply_bytes)
        finally:
            reply.abort()

    def _note(
        self, target: Target, credential: Credential | None, failure: Failure, began_ns: int
    ) -> None:
        ended_ns = self._serving.clock_ns()
        now_s = ended_ns * _S_PER_NS
        self._tried.append(Tried(target.name, failure, (ended_ns - began_ns) * _S_PER_NS))
        if credential is not None:
            target.provider.auth.failed(credential, failure, now_s)
        if class_of(failure).blames and failure.kind != "rate_limit":
            target.health.failed(now_s, f"{failure.kind}: {failure.message[:120]}")
        else:
            target.health.did_not_count(now_s)

    def _nobody(self) -> NobodyAnsweredError:
        tried = tuple(self._tried)
        last = tried[-1].failure
        failed = class_of(last)
        if failed.next in _CLIENTS_OWN:
            return NobodyAnsweredError(failed.status, last, tried, ())
        told = Failure(
            kind="rate_limit" if last.kind == "rate_limit" else "server",
            message=f"no target answered: {summary(tried)}",
            retry_after_s=last.retry_after_s,
        )
        return NobodyAnsweredError(failed.status, told, tried, ())

    def close(self) -> None:
        """The line of the ledger."""
        asked, ended_ns = self._asked, self._serving.clock_ns()
        path = {} if asked.caller is None else dict(asked.caller.path)
        total_ns = ended_ns - asked.received_ns
        entry = Entry(
            id=asked.id,
            at_s=self._arrived_s,
            operation="embeddings",
            purpose=asked.purpose,
            guardrails=asked.guardrails,
            parent=asked.parent,
            dialect=asked.dialect,
            model=asked.call.model,
            target=None if self._target is None else self._target.name,
            provider=None if self._target is None else self._target.provider.name,
            outcome=self.outcome,
            status=self.status,
            stream=False,
            attempts=failed_attempts(self._tried),
            usage=self._usage,
            usage_from="none" if self._usage is None else "provider" if self._told else "estimated",
            cost_nusd=self._cost,
            finish=None,
            first_token_ms=None,
            total_ms=total_ns * _MS_PER_NS,
            overhead_us=max(0, total_ns - self._waited_ns) // 1000,
            organisation=path.get("organisation", ""),
            team=path.get("team", ""),
            user=path.get("user", ""),
            key=path.get("key", ""),
            tags=() if asked.caller is None else asked.caller.tags,
            error=self.error,
        )
        self._serving.on_entry(entry)
        asked.trace.ended(entry)


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _estimated(call: EmbeddingCall) -> int:
    """About how many tokens, rather too many than too few."""
    return sum(
        len(one) if isinstance(one, tuple) else len(one.encode()) // _BYTES_PER_TOKEN + 1
        for one in call.inputs
    )
