"""A request for embeddings, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.errors import RequestError
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.preferences import Wanted
from headrace.gateway.serving.entry import Entry, Purpose
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.tracing import UNTRACED, RequestTrace
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply


class EmbeddingClient(Protocol):
    """The client side of a dialect with embeddings."""

    @property
    def name(self) -> str:
        """The dialect's name."""

    def read_embedding_call(self, body: bytes, path: str, headers: Headers) -> EmbeddingCall:
        """Parse a request. Raises RequestError naming the field at fault."""

    def write_embedding_reply(self, reply: EmbeddingReply, call: EmbeddingCall) -> bytes:
        """The body of a 200."""


class EmbeddingResult(NamedTuple):
    """The answer to a request for embeddings."""

    reply: EmbeddingReply
    candidate: Candidate
    """The target that answered."""
    attempts: int
    overhead_us: int
    """Time until now that was not spent waiting for providers."""
    cost_nusd: int | None
    """The cost of all attempts; None if a price is unknown."""
    body: bytes | None = None
    """A body in the client's dialect to pass on, in which case `reply` has the usage alone; None
    if it is to be written."""
    ignored: tuple[str, ...] = ()
    """Parameters that the target does not support."""

    @property
    def target(self) -> Target:
        """The target that answered."""
        return self.candidate.target


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingRequest:
    """A request for embeddings."""

    id: str
    dialect: str
    call: EmbeddingCall
    """The request in neutral form, without the fields meant for the gateway."""
    wanted: Wanted
    """Those fields."""
    caller: Caller | None
    received_ns: int
    """When it arrived, on the monotonic clock."""
    body: JsonObject | None = None
    """The client's body, for providers of its dialect, if there is one."""
    headers: Headers = field(default_factory=dict)
    """The client's headers."""
    trace: RequestTrace = UNTRACED
    purpose: Purpose = ""
    """As in the ledger, for texts the gateway itself embeds."""
    parent: str = ""
    """As in the ledger, for texts the gateway itself embeds."""
    guardrails: tuple[str, ...] = ()
    """What guardrails did."""
    refusal: RequestError | None = None
    """Why guardrails refuse it; None if they do not."""
    on_entry: Callable[[Entry], None] | None = None
    """Also called with the ledger line."""
