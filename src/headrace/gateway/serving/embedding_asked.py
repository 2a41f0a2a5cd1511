"""A request for embeddings, and what comes of it."""

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
    """How clients of a dialect ask for embeddings."""

    @property
    def name(self) -> str:
        """Of the dialect."""

    def read_embedding_call(self, body: bytes, path: str, headers: Headers) -> EmbeddingCall:
        """Raises RequestError naming the field at fault."""

    def write_embedding_reply(self, reply: EmbeddingReply, call: EmbeddingCall) -> bytes:
        """The body of a 200."""


class Embedded(NamedTuple):
    """An answer, and who gave it after how many attempts. overhead_us: of the time until now, what
    was not spent waiting for providers. cost_nusd: of all that was made for it. body: of a provider
    of the client's dialect, to be passed on; the reply has usage alone then. None where it is to be
    written."""

    reply: EmbeddingReply
    candidate: Candidate
    attempts: int
    overhead_us: int
    cost_nusd: int | None
    body: bytes | None = None

    @property
    def target(self) -> Target:
        """Who answered."""
        return self.candidate.target


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request for embeddings. call: without the words to the gateway; wanted: what these say.
    received_ns: of the monotonic clock. body: as the client sent it, for providers of its dialect;
    None if there is none. headers: of the client's. purpose, parent: as in the ledger,
    of what the gateway itself wants embedded. guardrails: what they did; refusal: why they want no
    answer. on_entry: told the ledger's line too."""

    id: str
    dialect: str
    call: EmbeddingCall
    wanted: Wanted
    caller: Caller | None
    received_ns: int
    body: JsonObject | None = None
    headers: Headers = field(default_factory=dict)
    trace: RequestTrace = UNTRACED
    purpose: Purpose = ""
    parent: str = ""
    guardrails: tuple[str, ...] = ()
    refusal: RequestError | None = None
    on_entry: Callable[[Entry], None] | None = None
