"""The line of the ledger that every request leaves, whatever became of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.protocol.neutral.usage import TokenUsage

# As OpenTelemetry's conventions name them.
Operation = Literal["chat", "text_completion", "embeddings"]
Outcome = Literal["answered", "cut", "client_gone", "failed", "refused"]
# "": the answer that the client asked for. The others are paid for on its way and told to nobody;
# "attempt": one that was sent and got no reply, or none of use, as far as it may be billed.
Purpose = Literal["", "attempt", "hedge", "judge", "router", "stage", "shadow", "cache"]

MOST_ERROR_CHARACTERS = 2000
"""Of what providers say of a failure, or errors repeat of a request; the rest of a page of HTML
tells nobody anything."""


class AttemptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One target that was asked. failure: its kind, None if it answered."""

    target: str
    began_ms: float
    lasted_ms: float
    failure: str | None = None
    status: int | None = None
    message: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """at_s: Unix time of its arrival. usage_from: "provider" told it, or it is "estimated" from
    what came before a stream was cut, of the prompt alone where nothing came. cost_nusd: None
    where nobody knows the price.

    first_token_ms, total_ms: from the arrival. overhead_us: of it all, what was not spent waiting
    for the provider or the client. organisation, team, user, key: whose account it went on, ""
    where there is none; tags: of the key and the levels above it. cache: "hit", "coalesced" or
    "semantic" if the gateway's own cache answered, "" if a provider did; a hit costs 0, and its
    usage, target and provider are those of the answer as it was first given.

    purpose, parent: an answer that was paid for besides the one that was told has a line of its
    own, with the id of the request it belongs to. variant: of an A/B test, the side that answered,
    or was to; assigned: the side it was given to.
    guardrails: those that found something, each as "name=action". prompt: of the file, as
    "name@version".
    """

    id: str
    at_s: float
    dialect: str
    model: str
    target: str | None
    provider: str | None
    outcome: Outcome
    status: int
    stream: bool
    attempts: tuple[AttemptEntry, ...]
    usage: TokenUsage | None
    usage_from: Literal["provider", "estimated", "none"]
    cost_nusd: int | None
    finish: str | None
    first_token_ms: float | None
    total_ms: float
    overhead_us: int
    organisation: str = ""
    team: str = ""
    user: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    cache: str = ""
    error: str = ""
    operation: Operation = "chat"
    purpose: Purpose = ""
    parent: str = ""
    variant: str = ""
    assigned: str = ""
    guardrails: tuple[str, ...] = ()
    prompt: str = ""

    def __post_init__(self) -> None:
        """Lines wait in memory and go to other processes: an error is cut when one is made."""
        if len(self.error) > MOST_ERROR_CHARACTERS:
            msgspec.structs.force_setattr(self, "error", self.error[:MOST_ERROR_CHARACTERS])
