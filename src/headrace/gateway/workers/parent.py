"""The parent of several workers: from a configuration to a port that all serve, until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.counters import CountersState
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.alerts.sender import AlertSender
from headrace.gateway.assemble import CliOverrides, Surroundings, log_changes, made, settings_given
from headrace.gateway.building.accounts import accounts_of, records_of
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.listening import GRACE_S
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import read_text
from headrace.gateway.settings.secret import Sources
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.ticking import tick
from headrace.gateway.workers.shared import Shared
from headrace.gateway.workers.supervisor import Supervisor
from headrace.http.listen import listen
from headrace.http.signals import signals

if TYPE_CHECKING:
    from headrace.gateway.workers.admin import ParentAdmin

logger = logging.getLogger(__name__)


class Parts(NamedTuple):
    """The objects that exist once, however many workers there are."""

    path: Path
    given: CliOverrides
    text: str
    settings: GatewaySettings
    ledger: LedgerStore | None
    telling: AlertSender


async def serve_with_workers(
    parts: Parts, on_started: Callable[[socket.socket, str | None, CountersState], None]
) -> None:
    """Serve until a signal. `on_started` gets the socket, the address of the admin page, and the
    state of the counters.

    Raises HeadraceError if it cannot start or go on.
    """
    settings = parts.settings
    _check(parts.path, settings)
    counters = MemoryCounters() if settings.access.redis is None else None
    accounts = await accounts_of(
        settings.access,
        Sources(os.environ, parts.path.parent),
        now_ns=time.time_ns,
        random_bytes=os.urandom,
        on_alert=parts.telling.budget,
        on_outage=parts.telling.counters,
        counters=counters,
    )
    shared = Shared(
        accounts,
        counters,
        parts.ledger,
        on_alert=parts.telling.budget,
        on_breaker=parts.telling.breaker,
        on_refused=parts.telling.refused,
        on_taken_out=parts.telling.variant,
        own_pid=os.getpid(),
    )
    with ExitStack() as stack:
        sockets = _listen(settings, stack)
        parent = Parent(parts, accounts, shared, sockets)
        admin = parent.admin
        admin_url = None if admin is None else admin.url
        await parent.serve(lambda: on_started(sockets[0], admin_url, accounts.describe().counters))
    await accounts.close()


class Parent:
    """The parent's work between start and end."""

    def __init__(
        self, parts: Parts, accounts: Accounts, shared: Shared, sockets: list[socket.socket]
    ) -> None:
        self._parts = parts
        self._accounts = accounts
        self._shared = shared
        self._settings = parts.settings
        self._reloading = asyncio.Lock()
        self.supervisor = Supervisor(
            shared, sockets, parts.path, parts.text, clock_s=time.monotonic
        )
        self.admin: ParentAdmin | None = None
        own = parts.settings.admin
        if own is not None:
            from headrace.gateway.workers.admin import ParentAdmin

            self.admin = ParentAdmin(
                parts.path,
                parts.settings,
                own,
                accounts,
                shared,
                self.supervisor,
                self.reload,
                () if parts.ledger is None else (parts.ledger.take,),
            )

    async def serve(self, on_started: Callable[[], None]) -> None:
        """Serve; returns when all workers have ended."""
        loop = asyncio.get_running_loop()
        supervisor = self.supervisor
        reloads: set[asyncio.Task[str]] = set()

        def reload() -> None:
            task = asyncio.ensure_future(self.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        ticking = asyncio.ensure_future(
            tick(self._accounts.tick, self._tell_lost, self._parts.telling.tick)
        )
        try:
            with signals() as heard:
                loop.add_signal_handler(signal.SIGHUP, reload)
                await supervisor.start()
                if self.admin is not None:
                    self.admin.start()
                on_started()
                stop = asyncio.ensure_future(heard.stop.wait())
                hurry = asyncio.ensure_future(heard.hurry.wait())
                ends: set[asyncio.Future[Any]] = {stop, supervisor.failed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                supervisor.drain()
                ended = asyncio.ensure_future(supervisor.ended(GRACE_S))
                ends = {ended, hurry}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in (stop, hurry, ended):
                    task.cancel()
                loop.remove_signal_handler(signal.SIGHUP)
        finally:
            await supervisor.close()
            ticking.cancel()
            if self.admin is not None:
                await self.admin.end()
        if supervisor.failed.done():
            supervisor.failed.result()

    async def reload(self) -> str:
        """Read the configuration again, in every worker or in none; return the problem, "" for
        none."""
        async with self._reloading:  # otherwise an older text might be used last
            return await self._reload()

    async def _reload(self) -> str:
        parts = self._parts
        try:
            text = read_text(parts.path)
            settings = settings_given(text, parts.path, parts.given)
            records = records_of(settings.access, Sources(os.environ, parts.path.parent))
            parts.telling.check(settings.alerts)
            # A large file takes a second, for which workers' questions would wait.
            await asyncio.to_thread(_check, parts.path, settings)
            self._accounts.check(records)
            problem = await self.supervisor.reload(text)
        except HeadraceError as error:
            problem = str(error)
        if problem:
            logger.error("the configuration was rejected and the previous one stays: %s", problem)
            return problem
        self._accounts.reconfigure(records)
        log_changes(self._settings, settings)
        if parts.ledger is not None:
            parts.ledger.retention_days = settings.ledger.retention_days
        self._settings = settings
        if self.admin is not None:
            self.admin.take(settings)
        parts.telling.reconfigure(settings.alerts)
        logger.info("all workers have read the configuration again")
        return ""

    def _tell_lost(self) -> None:
        ledger = self._parts.ledger
        written_lost = 0 if ledger is None else ledger.standing.lost
        self._parts.telling.lost(written_lost + self._shared.lines_lost())


def _check(path: Path, settings: GatewaySettings) -> None:
    """Raise HeadraceError if a worker would."""
    telemetry = Telemetry()
    gateway = made(path, settings, None, Surroundings(telemetry=telemetry))
    gateway.take_over()
    gateway.close()
    telemetry.close()


def _listen(settings: GatewaySettings, stack: ExitStack) -> list[socket.socket]:
    """One socket for each worker, all on one port. Raises ConfigError."""
    own = settings.listen
    # Sharing a port ignores another gateway of this user on it; this check does not.
    listen(own.host, own.port).close()
    first = stack.enter_context(listen(own.host, own.port, shares=True))
    port: int = first.getsockname()[1]
    others = (listen(own.host, port, shares=True) for _ in range(own.workers - 1))
    return [first, *(stack.enter_context(other) for other in others)]
