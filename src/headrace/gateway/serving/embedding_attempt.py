"""Texts sent to one target: in one request, or in as many as its provider needs.

A request that was sent and got no complete or no usable reply is billed as an estimate, because
nothing says that it is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.attempt import AttemptFailedError
from headrace.gateway.serving.bill import cost_nusd
from headrace.gateway.serving.embedding_request import EmbeddingRequest
from headrace.gateway.serving.prepared import without_ours
from headrace.gateway.serving.scrub import without_secrets
from headrace.gateway.serving.sent import Sent
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.settle import Took
from headrace.gateway.serving.told_error import with_body
from headrace.gateway.targets.auth import Credential, Outgoing, all_rest
from headrace.gateway.targets.passing import EmbeddingPassing
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.tracing import Headers as TraceHeaders
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.request import request_bytes
from headrace.gateway.within import Within
from headrace.protocol.neutral.dialect import DamagedReplyError, EncodedRequest
from headrace.protocol.neutral.embedding import EmbeddingProvider, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage

_S_PER_NS = 1e-9
_MOST_ERROR_BYTES = 1 << 20


class Paid(NamedTuple):
    """A charge of a target, for vectors or for a request that was sent to it."""

    candidate: Candidate
    usage: TokenUsage
    is_told: bool
    """Whether the provider reported the usage; otherwise it is an estimate."""

    @property
    def target(self) -> Target:
        """The target that bills."""
        return self.candidate.target

    @property
    def took(self) -> Took:
        """The charge to settle."""
        cost = cost_nusd(self.usage, self.target.price)
        return Took(self.candidate.model, self.usage, cost)


@dataclass(slots=True, kw_only=True)
class EmbeddingAttempt:
    """One attempt to embed texts at one target."""

    serving: Serving
    asked: EmbeddingRequest
    candidate: Candidate
    side: EmbeddingProvider
    credential: Credential | None
    """None if all keys rest."""
    trace: TraceHeaders
    tokens: int
    """Estimated tokens of all texts."""
    paid: list[Paid]
    """Charges are added to it, whatever becomes of the attempt."""
    requests: Sequence[EncodedRequest] | None = None
    """As many as the provider needs; None if the client's body is passed on."""
    _was_sent: bool = False

    async def vectors(self) -> tuple[EmbeddingReply, bytes | None]:
        """The vectors, or a body to pass on and its usage alone. Charges are recorded either way.
        Raises AttemptFailedError."""
        target = self.candidate.target
        provider = target.provider
        if self.credential is None:
            now_s = self.serving.clock_ns() * _S_PER_NS
            raise AttemptFailedError(all_rest(provider.name, provider.auth, now_s, target.model))
        timeouts = target.timeouts or provider.timeouts
        first_token_s = timeouts.first_byte_s or provider.first_token_s
        try:
            with Within(first_token_s):
                reply, body = await self._asked(self.credential)
        except TimeoutError:
            told = f"no answer within {first_token_s:g} s"
            failure = Failure(kind="timeout", message=told)
        except (UpstreamError, AttemptFailedError) as error:
            failure = error.failure
        except DamagedReplyError as error:
            failure = error.failure or Failure(kind="damaged", message=str(error))
        else:
            self._pay(reply.usage, of=1)
            return reply, body
        raise AttemptFailedError(failure, self.credential, was_sent=self._was_sent)

    async def _asked(self, credential: Credential) -> tuple[EmbeddingReply, bytes | None]:
        passing = self._passing()
        if passing is None:
            return await self._in_batches(credential), None
        body = await self._send(credential, self._passed(passing), of=1)
        try:
            if self._is_recoded(passing):
                return self.side.read_embeddings((body,)), None
            return EmbeddingReply(model="", vectors=(), usage=passing.usage(body)), body
        except DamagedReplyError as error:
            self._pay_damaged(error, of=1)
            raise

    def _passing(self) -> EmbeddingPassing | None:
        """How to pass the body through; None if it has to be translated."""
        passes = self.candidate.target.provider.embedding_passes
        return None if self.asked.body is None else passes.get(self.asked.dialect)

    def _is_recoded(self, passing: EmbeddingPassing) -> bool:
        """Whether the client wants vectors as base64, which the provider may not know."""
        return self.asked.call.base64 and not passing.base64

    def _passed(self, passing: EmbeddingPassing) -> EncodedRequest:
        assert self.asked.body is not None
        model = self.candidate.target.model
        others = ("encoding_format",) if self._is_recoded(passing) else ()
        body = without_ours(self.asked.body, model, *others)
        return EncodedRequest(passing.path(model), {"content-type": "application/json"}, body)

    async def _in_batches(self, credential: Credential) -> EmbeddingReply:
        """Send as many requests as the provider needs. Batches that arrived are billed, even if
        the next one fails or the client leaves."""
        requests = self.requests
        assert requests is not None
        bodies: list[bytes] = []
        try:
            for request in requests:
                bodies.append(await self._send(credential, request, of=len(requests)))
            return self.side.read_embeddings(tuple(bodies))
        except BaseException:
            for body in bodies:
                try:
                    self._pay(self.side.read_embeddings((body,)).usage, of=len(requests))
                except DamagedReplyError as error:
                    self._pay_damaged(error, of=len(requests))
            raise

    def _pay(self, usage: TokenUsage | None, *, of: int) -> None:
        """Record the charge of one of `of` batches."""
        estimated = TokenUsage(input_tokens=-(-self.tokens // of))
        self.paid.append(Paid(self.candidate, usage or estimated, usage is not None))

    def _pay_damaged(self, error: DamagedReplyError, *, of: int) -> None:
        """Record an unusable reply; an error in one costs nothing unless it reports usage."""
        if error.failure is None or error.usage is not None:
            self._pay(error.usage, of=of)

    async def _send(self, credential: Credential, written: EncodedRequest, *, of: int) -> bytes:
        """Send one batch of `of`."""
        sent, status, is_lost = Sent(self.serving.clock_ns), 0, False
        try:
            reply, proof = await self._reply(credential, written, sent)
            status = reply.status
            try:
                if 200 <= status < 300:
                    return await reply.body(self.serving.most_reply_bytes)
                body = await reply.body(_MOST_ERROR_BYTES)
            finally:
                reply.abort()
            failure = self.side.read_failure(status, reply.headers, body)
            failure = with_body(failure, self.candidate.target.provider.side.name, body)
            raise AttemptFailedError(without_secrets(failure, proof))
        except UpstreamError as error:
            is_lost = error.problem in ("timeout", "cut") or status > 0
            if error.unsent:
                sent.at_ns = None
            raise
        except asyncio.CancelledError:  # the client has gone, or the time is over
            is_lost = True
            raise
        finally:
            if sent.at_ns is not None:
                self._was_sent = True
                # An error may be cut off as well, and costs nothing.
                if is_lost and status < 400:
                    self._pay(None, of=of)

    async def _reply(
        self, credential: Credential, written: EncodedRequest, sent: Sent
    ) -> tuple[Reply, TraceHeaders]:
        """The reply, with the secret headers of the request: they must not appear in messages."""
        target = self.candidate.target
        provider = target.provider
        path = provider.base.joined(written.path)
        headers = (*written.headers.items(), *self.trace, *provider.headers)
        origin = provider.base.origin
        outgoing = Outgoing("POST", origin.host_header, path, headers, written.body)
        proof = await credential.headers(outgoing)
        reply = await provider.pool.send(
            request_bytes("POST", origin, path, headers + proof, written.body),
            (target.timeouts or provider.timeouts).before_content(),
            sent.mark,
        )
        return reply, (*proof, *provider.headers)
