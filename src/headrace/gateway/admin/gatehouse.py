"""What the admin API asks of a gateway, in however many processes that runs.

`InProcess` answers for one process; a parent of several workers asks them. Everything that is told
is made of msgspec Structs, so that it can cross a process's border as JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from headrace.gateway.accounts.counters import Reading
from headrace.gateway.accounts.records import Records
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.admin.feed import Feed
from headrace.gateway.request_log.store import RequestLog
from headrace.gateway.routing.route import Route
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.telemetry.standing import Standing


class WorkerStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one process stands. worker: its name among several. in_flight: requests for an answer of
    a model that are not over."""

    worker: str
    in_flight: int
    standing: Standing


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of reading the file anew. error: why it was not taken, None if it was. changed:
    paths of settings that are others now; at_next_start: those of them that wait until then."""

    error: str | None = None
    changed: tuple[str, ...] = ()
    at_next_start: tuple[str, ...] = ()


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A target that would be asked. score: what it was ordered by, lower first; None: no limit.
    variant: of an A/B test, the side it belongs to."""

    target: str
    provider: str
    model: str
    score: float | None
    reasons: tuple[str, ...]
    variant: str = ""


class ExplainedLeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A target that would not. for_s: how long that holds, None if it does not pass by itself."""

    target: str
    model: str
    reason: str
    for_s: float | None


class ExplainedChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model made of others. model: what is asked in the end, None where that hangs on answers;
    the candidates are then of all that may be asked, in their order. said: the steps, for people.
    question: what a router model would be asked, as (role, text)."""

    model: str | None
    said: tuple[str, ...]
    question: tuple[tuple[str, str], ...]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What `headrace gateway explain` says, of targets as they are now. choice: None for a model
    with targets of its own. variant: the side of an A/B test that the request is given to. note:
    why its messages cannot be read, "" if they can."""

    candidates: tuple[ExplainedCandidate, ...]
    left_out: tuple[ExplainedLeftOut, ...]
    choice: ExplainedChoice | None = None
    variant: str = ""
    note: str = ""


class Asked(NamedTuple):
    """A reply that has begun. pieces: of its body, as they come."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Gatehouse(Protocol):
    """What is asked of the gateway that runs now, whatever was reloaded meanwhile."""

    @property
    def settings(self) -> GatewaySettings:
        """Those in force."""

    @property
    def config_path(self) -> Path:
        """The file they were read from."""

    @property
    def ledger_path(self) -> Path | None:
        """None where no ledger is kept."""

    @property
    def feed(self) -> Feed:
        """Lines of all processes, as requests end."""

    @property
    def routes(self) -> Mapping[str, Route]:
        """Models of the file; of their targets only what the file says counts."""

    @property
    def store(self) -> AccountStore | None:
        """Where keys are made; None where they are those of the file alone."""

    @property
    def request_log(self) -> RequestLog | None:
        """Where bodies are kept; None where they are not."""

    def configured(self) -> Records:
        """Groups and keys of the file. Raises ConfigError."""

    async def readings(self) -> tuple[Reading, ...]:
        """How every limit and budget stands, over all processes; () where nobody is counted."""

    async def keys_changed(self) -> None:
        """The store was written to; returns when the change holds, or soon will."""

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """One for each process that answers requests."""

    async def explain(self, model: str, body: bytes, key: str | None = None) -> Explained:
        """Who would be asked now. key: for the key of this id or label. Raises RequestError as a
        request would be refused, and where there is no such key."""

    async def take_out(self, target: str, *, out: bool) -> bool:
        """Send a target nothing, in every process, until the file is read anew; or let it have
        requests again, whatever failed before. False where there is no such target."""

    async def reload(self) -> Reloaded:
        """Read the file anew, as SIGHUP does."""

    def ask(self, body: bytes, request_id: str) -> AbstractAsyncContextManager[Asked]:
        """A chat completion on the administrator's account. Leaving ends what is done for it, and
        returns when its line is written."""
