"""A request as the log keeps it: who asked what, what was answered, what became of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.gateway.serving.entry import Outcome

# Why a record has no bodies; "" where it has them.
WithoutBodies = Literal["", "settings", "client", "zero_retention", "unreadable", "too_large"]


# How their paths end, in OpenAI's API and Ollama's.
_OF_EMBEDDINGS = ("embeddings", "embed")
# And where tokens are counted, in Anthropic's API and OpenAI's.
_OF_COUNTS = ("count_tokens", "input_tokens")


class LoggedBody(msgspec.Struct, frozen=True, kw_only=True):
    """text: what is kept. bytes: what the client sent or got. cut: `text` is only its beginning.
    redacted: how many values were replaced. assembled: the client got a stream, and this is the
    same answer as it reads without one."""

    text: str
    bytes: int
    cut: bool = False
    redacted: int = 0
    assembled: bool = False


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """line: unique, in the order of arrival; what a page is continued from. id: of the request, as
    its `x-request-id` says; clients may choose it, so it may be there twice. at_s: Unix time of its
    arrival. target, provider: None where nobody answered. organisation, team, user, key: whose
    account it went on, "" where there is none. session, trace_id, variant: "" where there is none.

    request, reply: None where they are not kept (`without_bodies` says why) or nothing came. Tokens
    and cost are those of the ledger's line with the same id, which has all of it; None where nobody
    knows them.
    """

    line: str
    id: str
    at_s: float
    dialect: str
    path: str
    model: str
    target: str | None
    provider: str | None
    outcome: Outcome
    status: int
    stream: bool
    total_ms: float
    first_token_ms: float | None = None
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_nusd: int | None = None
    organisation: str = ""
    team: str = ""
    user: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    session: str = ""
    trace_id: str = ""
    variant: str = ""
    cache: str = ""
    error: str = ""
    without_bodies: WithoutBodies = ""
    request: LoggedBody | None = None
    reply: LoggedBody | None = None

    @property
    def wants_vectors(self) -> bool:
        """Whether embeddings were asked for, whose answers say nothing."""
        return self.path.rpartition("/")[2] in _OF_EMBEDDINGS

    @property
    def wants_count(self) -> bool:
        """Whether the tokens of a prompt were to be counted and nothing answered."""
        return self.path.rpartition("/")[2] in _OF_COUNTS
