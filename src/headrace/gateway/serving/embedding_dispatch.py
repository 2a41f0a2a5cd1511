"""Texts sent to one target after another until one makes vectors of all of them.

There are no streams here: what a target made before it failed is discarded, and billed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.serving.attempt import AttemptFailedError
from headrace.gateway.serving.embedding_attempt import EmbeddingAttempt, Paid
from headrace.gateway.serving.embedding_request import EmbeddingRequest
from headrace.gateway.serving.parameter_support import untranslatable
from headrace.gateway.serving.rounds import Rounds
from headrace.gateway.serving.serving import Serving
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.embedding import EmbeddingProvider, EmbeddingReply
from headrace.protocol.neutral.losses import embedding_losses

_S_PER_NS = 1e-9


class Made(NamedTuple):
    """Vectors of all texts."""

    reply: EmbeddingReply
    candidate: Candidate
    body: bytes | None
    """A body in the client's dialect to pass on; `reply` then has the usage alone."""


@dataclass(slots=True, kw_only=True)
class EmbeddingDispatch(Rounds[Made]):
    """The failover of one request for embeddings from target to target."""

    serving: Serving
    asked: EmbeddingRequest
    side_of: Callable[[Target], EmbeddingProvider | None]
    paid: list[Paid] = field(default_factory=list)
    """All charges, whatever became of the request."""
    ignored: tuple[str, ...] = ()
    """Parameters that the target of the answer does not support."""

    def able(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """The candidates that support embeddings."""
        return tuple(
            candidate for candidate in candidates if self.side_of(candidate.target) is not None
        )

    async def _at(self, candidate: Candidate) -> Made | None:
        target, count = candidate.target, len(self.paid)
        side = self.side_of(target)
        assert side is not None
        requests = None
        ignored: tuple[str, ...] = ()
        if not self._passes(target):
            try:
                requests = side.write_embeddings(self.asked.call, target.model).requests
            except RequestError as error:
                self._cannot_take(candidate, untranslatable(error))
                return None
            losses = embedding_losses(name for request in requests for name in request.dropped)
            if not self._may_try(candidate, losses):
                return None
            ignored = losses.all
        began_ns = self._begin(candidate)
        trace = self.asked.trace.attempt(target)
        attempt = EmbeddingAttempt(
            serving=self.serving, asked=self.asked, candidate=candidate, side=side,
            credential=target.provider.auth.pick(began_ns * _S_PER_NS, target.model),
            trace=trace.headers, tokens=self.ask.input_tokens, paid=self.paid,
            requests=requests,
        )  # fmt: skip
        try:
            reply, body = await attempt.vectors()
        except AttemptFailedError as error:
            trace.failed(error.failure)
            self._failed(candidate, error, began_ns)
            self._unheld += [charge.took for charge in self.paid[count:]]
            raise
        except BaseException:
            self.waited_ns += self.clock_ns() - began_ns
            self._left(candidate)
            raise
        ended_ns = self.clock_ns()
        self.waited_ns += ended_ns - began_ns
        target.health.ended()
        target.health.succeeded(ended_ns * _S_PER_NS)
        self.ignored = ignored
        return Made(reply, candidate, body)

    def _passes(self, target: Target) -> bool:
        """Whether the target gets the client's body as it is."""
        return self.asked.body is not None and (
            self.asked.dialect in target.provider.embedding_passes
        )
