"""The gatehouse of a gateway that is one process."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.caller_lookup import caller_named
from headrace.gateway.accounts.counters import Reading
from headrace.gateway.accounts.records import Records
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.admin.feed import Feed
from headrace.gateway.admin.gatehouse import (
    Asked,
    Explained,
    ExplainedCandidate,
    ExplainedChoice,
    ExplainedLeftOut,
    Reloaded,
    WorkerStanding,
)
from headrace.gateway.admin.in_app import asked_in_app
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.explaining import Explanation, explanation_of
from headrace.gateway.request_log.store import RequestLog
from headrace.gateway.routing.route import Route
from headrace.gateway.serving.reply_headers import REQUEST_ID
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.telemetry.standing import standing

_S_PER_NS = 1e-9
_PATH = "/v1/chat/completions"


class Running(Protocol):
    """The gateway that is running now; a reload replaces it."""

    gateway: Gateway


class InProcess:
    """The Gatehouse of a gateway in this process.

    accounts: None in a gateway that has none. reload: reloads the file. own_key: the key that
    identifies its administrator on the data port. in_flight: running requests.
    """

    def __init__(
        self,
        running: Running,
        *,
        config_path: Path,
        ledger_path: Path | None,
        feed: Feed,
        accounts: Accounts | None,
        configured: Callable[[GatewaySettings], Records],
        reload: Callable[[], Awaitable[Reloaded]],
        own_key: str,
        in_flight: Callable[[], int],
        request_log: RequestLog | None = None,
    ) -> None:
        self._running = running
        self.config_path = config_path
        self.ledger_path = ledger_path
        self.feed = feed
        self._accounts = accounts
        self._configured = configured
        self._reload = reload
        self._own_key = own_key
        self._in_flight = in_flight
        self.request_log = request_log

    @property
    def settings(self) -> GatewaySettings:
        """See Gatehouse."""
        return self._running.gateway.settings

    @property
    def routes(self) -> Mapping[str, Route]:
        """See Gatehouse."""
        return self._running.gateway.router.routes

    @property
    def store(self) -> AccountStore | None:
        """See Gatehouse."""
        return None if self._accounts is None else self._accounts.store

    def configured(self) -> Records:
        """See Gatehouse."""
        return self._configured(self.settings)

    async def readings(self) -> tuple[Reading, ...]:
        """See Gatehouse."""
        return () if self._accounts is None else await self._accounts.all_readings()

    async def keys_changed(self) -> None:
        """See Gatehouse."""
        if self._accounts is not None:
            await self._accounts.tick()

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """See Gatehouse."""
        gateway = self._running.gateway
        now = standing(gateway.router, gateway.providers, gateway.serving.accounts, self._now_s())
        return (WorkerStanding(worker="", in_flight=self._in_flight(), standing=now),)

    async def explain(self, model: str, body: bytes, key: str | None = None) -> Explained:
        """See Gatehouse."""
        caller = None if key is None else self._caller(key)
        now_s = self._now_s()
        told = explanation_of(self._running.gateway, model, body, now_s=now_s, caller=caller)
        return explained(told)

    async def take_out(self, target: str, *, out: bool) -> bool:
        """See Gatehouse."""
        return take_out(self.routes, target, out=out)

    async def reload(self) -> Reloaded:
        """See Gatehouse."""
        return await self._reload()

    def ask(self, body: bytes, request_id: str) -> AbstractAsyncContextManager[Asked]:
        """See Gatehouse."""
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "authorization": f"Bearer {self._own_key}",
            REQUEST_ID: request_id,
        }
        return asked_in_app(self._running.gateway.app, body, _PATH, headers)

    def _caller(self, key: str) -> Caller:
        """The caller by id or label of the key. Raises RequestError."""
        return caller_named(() if self._accounts is None else self._accounts.roster.callers(), key)

    def _now_s(self) -> float:
        return self._running.gateway.serving.clock_ns() * _S_PER_NS


def explained(told: Explanation) -> Explained:
    """The explanation in a form for JSON."""
    decision, composed = told.decision, told.composed
    candidates = tuple(
        ExplainedCandidate(
            target=candidate.target.name,
            provider=candidate.target.provider.name,
            model=candidate.model,
            score=candidate.score if math.isfinite(candidate.score) else None,
            reasons=candidate.reasons,
            variant=candidate.variant,
        )
        for candidate in decision.candidates
    )
    left_out = tuple(
        ExplainedLeftOut(
            target=skipped.target,
            model=skipped.model,
            reason=skipped.for_operators,
            for_s=skipped.for_s,
        )
        for skipped in decision.left_out
    )
    return Explained(
        candidates=candidates,
        left_out=left_out,
        choice=None if composed is None else ExplainedChoice(
            model=composed.model, said=composed.said, question=composed.question
        ),
        variant=decision.assigned,
        note=told.note,
    )  # fmt: skip


def take_out(routes: Mapping[str, Route], name: str, *, out: bool) -> bool:
    """Take a target out in this process. Models that share a target share its health."""
    found = [target for route in routes.values() for target in route.targets if target.name == name]
    for one in found:
        if out:
            one.health.take_out()
        else:
            one.health.put_back()
    return bool(found)
