"""The admin API's interface to a gateway, in however many processes it runs.

`InProcess` answers for one process; a parent of several workers queries them. All values are made
of msgspec Structs, so that they can cross a process border as JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from headrace.gateway.accounts.counters import Reading
from headrace.gateway.accounts.records import Records
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.admin.feed import Feed
from headrace.gateway.request_log.store import RequestLog
from headrace.gateway.routing.route import Route
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.telemetry.standing import Standing


class WorkerStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one process."""

    worker: Annotated[str, Meta(description="Its name among several.")]
    in_flight: Annotated[int, Meta(description="Running requests for an answer of a model.")]
    standing: Standing


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reloading the file."""

    error: Annotated[str | None, Meta(description="Why it was rejected, null if it was not.")] = (
        None
    )
    changed: Annotated[tuple[str, ...], Meta(description="Paths of settings that changed.")] = ()
    at_next_start: Annotated[
        tuple[str, ...], Meta(description="Those of them that take effect at the next start.")
    ] = ()


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A target that would be tried."""

    target: str
    provider: str
    model: str
    score: Annotated[
        float | None, Meta(description="What it was ordered by, lower first; null: unlimited.")
    ]
    reasons: tuple[str, ...]
    variant: Annotated[str, Meta(description="The variant of an A/B test that it belongs to.")] = ""


class ExplainedLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A target that would not be tried."""

    target: str
    model: str
    reason: str
    for_s: Annotated[
        float | None, Meta(description="How long that holds, null if it does not pass by itself.")
    ]


class ExplainedChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The choice of a model that is made of others."""

    model: Annotated[
        str | None,
        Meta(
            description="The model chosen in the end, null if that depends on answers; the "
            "candidates are then those of all models that may be tried, in order."
        ),
    ]
    said: Annotated[tuple[str, ...], Meta(description="The steps, for people.")]
    question: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="What a router model would be sent, as (role, text)."),
    ]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `headrace gateway explain`, for targets in their current state."""

    candidates: tuple[ExplainedCandidate, ...]
    left_out: tuple[ExplainedLeftOut, ...]
    choice: Annotated[
        ExplainedChoice | None, Meta(description="null for a model with targets of its own.")
    ] = None
    variant: Annotated[
        str, Meta(description="The variant of an A/B test that the request is assigned to.")
    ] = ""
    note: Annotated[str, Meta(description='Why its messages cannot be read, "" if they can.')] = ""


class Asked(NamedTuple):
    """A reply that has begun."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]
    """Its body, piece by piece."""


class Gatehouse(Protocol):
    """The interface to the running gateway, the same across reloads."""

    @property
    def settings(self) -> GatewaySettings:
        """The settings in force."""

    @property
    def config_path(self) -> Path:
        """The file that the settings were read from."""

    @property
    def ledger_path(self) -> Path | None:
        """The ledger's file; None if no ledger is kept."""

    @property
    def feed(self) -> Feed:
        """Lines of all processes, as requests end."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """Models of the file; the state of their targets is not meaningful."""

    @property
    def store(self) -> AccountStore | None:
        """The store in which keys are made; None if all keys are in the file."""

    @property
    def request_log(self) -> RequestLog | None:
        """The log of bodies; None if they are not kept."""

    def configured(self) -> Records:
        """Groups and keys of the file. Raises ConfigError."""

    async def readings(self) -> tuple[Reading, ...]:
        """The state of every limit and budget, over all processes; () if nothing is counted."""

    async def keys_changed(self) -> None:
        """The store was written to; returns when the change holds, or soon will."""

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """The state of each process that answers requests."""

    async def explain(self, model: str, body: bytes, key: str | None = None) -> Explained:
        """The targets that would be tried now. key: id or label of the key to explain for. Raises
        RequestError where the request would be refused, and if there is no such key."""

    async def take_out(self, target: str, *, out: bool) -> bool:
        """Send a target no requests, in any process, until the file is reloaded; or let it have
        requests again, whatever failed before. False if there is no such target."""

    async def reload(self) -> Reloaded:
        """Reload the file, as SIGHUP does."""

    def ask(self, body: bytes, request_id: str) -> AbstractAsyncContextManager[Asked]:
        """A chat completion on the administrator's account. Leaving ends what is done for it, and
        returns when its line is written."""
