"""The ledger line that every request leaves, whatever became of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.protocol.neutral.usage import TokenUsage

# Named as in OpenTelemetry's conventions.
Operation = Literal["chat", "text_completion", "embeddings"]
Outcome = Literal["answered", "cut", "client_gone", "failed", "refused"]
# "" is the answer that the client requested. The others are billed calls on its way, not sent to
# it; "attempt" was sent and got no usable reply, as far as it may be billed.
Purpose = Literal["", "attempt", "hedge", "judge", "router", "stage", "shadow", "cache"]

MOST_ERROR_CHARACTERS = 2000
"""Longest error kept of a provider's failure or a refusal; the rest of an HTML page is useless."""


class AttemptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a target."""

    target: str
    began_ms: float
    lasted_ms: float
    failure: str | None = None
    """The kind of failure; None if it answered."""
    status: int | None = None
    message: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger line: a request, or a billed call beside its answer.

    A cache hit costs 0; its usage, target and provider are those of the answer as first given.
    """

    id: str
    at_s: float
    """Unix time of its arrival."""
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
    """"estimated" counts what arrived before a stream was cut, the prompt alone if nothing did."""
    cost_nusd: int | None
    """None if the price is unknown."""
    finish: str | None
    first_token_ms: float | None
    """From its arrival."""
    total_ms: float
    """From its arrival."""
    overhead_us: int
    """Time not spent waiting for the provider or the client."""
    organisation: str = ""
    team: str = ""
    user: str = ""
    key: str = ""
    """The account that is charged, as the three above; "" without one."""
    tags: tuple[str, ...] = ()
    """Tags of the key and of the levels above it."""
    cache: str = ""
    """"hit", "coalesced" or "semantic" if the gateway's cache answered, "" if a provider did."""
    error: str = ""
    operation: Operation = "chat"
    purpose: Purpose = ""
    parent: str = ""
    """For a billed call beside an answer, the id of the request it belongs to."""
    variant: str = ""
    """The A/B variant that answered, or was to."""
    assigned: str = ""
    """The A/B variant that the request was assigned to."""
    guardrails: tuple[str, ...] = ()
    """Guardrails that found something, each as "name=action"."""
    prompt: str = ""
    """The configured prompt it was made with, as "name@version"."""
    ignored: tuple[str, ...] = ()
    """Parameters of the client's body that the target of the answer does not support."""
    skipped: tuple[str, ...] = ()
    """Targets that were not tried, each as "target: reason"."""
    dropped: tuple[str, ...] = ()
    """What of the answer the client's dialect has no form for."""

    def __post_init__(self) -> None:
        """Shorten the error: lines wait in memory and go to other processes."""
        if len(self.error) > MOST_ERROR_CHARACTERS:
            msgspec.structs.force_setattr(self, "error", self.error[:MOST_ERROR_CHARACTERS])
