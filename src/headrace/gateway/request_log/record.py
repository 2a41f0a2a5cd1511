"""A request as it is logged: the caller, the request, the answer and the outcome."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.serving.entry import Outcome

# Why a record has no bodies; "" where it has them.
WithoutBodies = Literal["", "settings", "client", "zero_retention", "unreadable", "too_large"]


# How their paths end, in OpenAI's API and Ollama's.
_OF_EMBEDDINGS = ("embeddings", "embed")
# And where tokens are counted, in Anthropic's API and OpenAI's.
_OF_COUNTS = ("count_tokens", "input_tokens")


class LoggedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body as it was stored."""

    text: Annotated[str, Meta(description="The part that was kept.")]
    bytes: Annotated[int, Meta(description="What the client sent or got.")]
    cut: Annotated[bool, Meta(description="Whether `text` is only its beginning.")] = False
    redacted: Annotated[int, Meta(description="How many values were replaced.")] = 0
    assembled: Annotated[
        bool, Meta(description="The client got a stream, and this is the same answer without one.")
    ] = False


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the log. Tokens and cost are those of the ledger's line with the same id, which
    has all of it; null if unknown."""

    line: Annotated[
        str, Meta(description="Unique, in the order of arrival; pages continue from it.")
    ]
    id: Annotated[
        str,
        Meta(
            description="The request's `x-request-id`; clients may choose it, so it may occur "
            "twice."
        ),
    ]
    at_s: Annotated[float, Meta(description="Unix time of its arrival.")]
    dialect: str
    path: str
    model: str
    target: Annotated[str | None, Meta(description="null if no target answered.")]
    provider: Annotated[str | None, Meta(description="null if no target answered.")]
    outcome: Outcome
    status: int
    stream: bool
    total_ms: float
    first_token_ms: float | None = None
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_nusd: int | None = None
    organisation: Annotated[
        str,
        Meta(
            description='The account it was charged to, as team, user and key are; "" without one.'
        ),
    ] = ""
    team: str = ""
    user: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    session: Annotated[str, Meta(description='"" without one, as for trace_id and variant.')] = ""
    trace_id: str = ""
    variant: str = ""
    cache: str = ""
    error: str = ""
    without_bodies: WithoutBodies = ""
    request: Annotated[
        LoggedBody | None,
        Meta(
            description="null if it is not kept (`without_bodies` has the reason) or nothing "
            "arrived."
        ),
    ] = None
    reply: Annotated[
        LoggedBody | None,
        Meta(
            description="null if it is not kept (`without_bodies` has the reason) or nothing "
            "was sent."
        ),
    ] = None

    @property
    def wants_vectors(self) -> bool:
        """Whether it was a request for embeddings, whose answers have no text."""
        return self.path.rpartition("/")[2] in _OF_EMBEDDINGS

    @property
    def wants_count(self) -> bool:
        """Whether the tokens of a prompt were to be counted and nothing answered."""
        return self.path.rpartition("/")[2] in _OF_COUNTS
