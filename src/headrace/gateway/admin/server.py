"""The admin port of the file: its own listener, beside that of clients."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.admin.app import admin_app
from headrace.gateway.admin.feed import Feed
from headrace.gateway.admin.gatehouse import Gatehouse, Reloaded
from headrace.gateway.admin.in_process import InProcess, Running
from headrace.gateway.admin.in_workers import InWorkers, Workers
from headrace.gateway.assemble import Surroundings
from headrace.gateway.building.accounts import records_of
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.changes import changes, wait_for_start
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import MIN_KEY_CHARS, Secret, Sources, read_secret
from headrace.http.client_limits import ClientLimits
from headrace.http.host_names import is_loopback
from headrace.http.listen import listen, url_of
from headrace.http.request_id import random_id
from headrace.http.server import HttpServer

# Pages are read by people; who does not read to the end is not waited for.
_GRACE_S = 2
_MOST_CONNECTIONS = 256
_OWN_KEY_BYTES = 32


def admin_key(settings: AdminSettings, sources: Sources) -> Secret | None:
    """The admin key; None where none is required. Raises ConfigError."""
    if not settings.require_key:
        return None
    key = read_secret(settings.key or "", sources, "admin.key")
    length = len(key.reveal())
    if length < MIN_KEY_CHARS and not is_loopback(settings.host):
        raise ConfigError(
            f"admin.key has {length} characters, and admin.host {settings.host} can be reached by "
            f"other machines, which may guess it: at least {MIN_KEY_CHARS} are needed (`openssl "
            "rand -hex 24` makes one), or `host: 127.0.0.1`"
        )
    return key


def admin_warnings(settings: AdminSettings, sources: Sources) -> tuple[str, ...]:
    """What is weak in settings that work. Raises ConfigError."""
    key = admin_key(settings, sources)
    warnings = []
    if key is not None and len(key.reveal()) < MIN_KEY_CHARS:
        warnings.append(
            f"admin.key has {len(key.reveal())} characters and can be guessed by programs on this "
            f"machine; use {MIN_KEY_CHARS} or more (`openssl rand -hex 24` makes one)"
        )
    if not is_loopback(settings.host):
        warnings.append(
            f"admin.host {settings.host}: the admin port speaks HTTP without TLS, and its key and "
            "all it shows can be read on the way; listen on 127.0.0.1 behind a proxy with TLS"
        )
    return tuple(warnings)


class AdminServer:
    """A server that listens once made; answers from `start` on. Raises ConfigError for an address
    in use.
    """

    def __init__(self, house: Gatehouse, settings: AdminSettings, key: Secret | None) -> None:
        self._ending = asyncio.Event()
        app = admin_app(
            house, settings, key,
            clock_s=time.monotonic, wall_s=time.time, new_id=random_id, ending=self._ending,
        )  # fmt: skip
        self._socket: socket.socket = listen(
            settings.host, settings.port, names=("admin.host", "admin.port")
        )
        limits = ClientLimits(max_connections=_MOST_CONNECTIONS)
        self._http = HttpServer(app, self._socket, grace_s=_GRACE_S, limits=limits)

    @property
    def url(self) -> str:
        """The address of the page."""
        return url_of(self._socket)

    def start(self) -> None:
        """Begin to answer."""
        self._http.start()

    async def end(self) -> None:
        """Streams end, which would go on as long as somebody looks; what else is open a while
        later is cut."""
        self._ending.set()
        self._http.stop()
        if not await self._http.ended(_GRACE_S):
            self._http.cut()
            await self._http.ended(_GRACE_S)
        self._socket.close()


class AdminPlace(NamedTuple):
    """The parts of the admin port that survive a reload: where lines are heard, and the key it uses
    on the data port."""

    settings: AdminSettings
    key: Secret | None
    feed: Feed
    own_key: str

    @classmethod
    def of(cls, settings: AdminSettings, sources: Sources) -> AdminPlace:
        """Raises ConfigError."""
        own_key = secrets.token_urlsafe(_OWN_KEY_BYTES)
        return cls(settings, admin_key(settings, sources), Feed(), own_key)

    def within(self, around: Surroundings) -> Surroundings:
        """Surroundings in which this hears of each request, and may ask."""
        takers = (*around.takers, self.feed.take)
        return replace(around, takers=takers, own_key=self.own_key)

    def server(self, house: Gatehouse) -> AdminServer:
        """Raises ConfigError for an address that is taken."""
        return AdminServer(house, self.settings, self.key)


def admin_here(
    place: AdminPlace,
    running: Running,
    config_path: Path,
    accounts: Accounts,
    around: Surroundings,
    reload: Callable[[], str | Awaitable[str]],
    workers: Workers | None = None,
) -> AdminServer:
    """Of a gateway in this process. reload: reads the file anew, and says what stood against it.
    workers: who answer clients, None where this process does. Raises ConfigError for an address
    that is taken."""
    started = running.gateway.settings
    sources = Sources(os.environ, config_path.parent)
    ledger = started.ledger.path

    async def take_anew() -> Reloaded:
        before = running.gateway.settings
        told = reload()
        problem = told if isinstance(told, str) else await told
        return reloaded(before, running.gateway.settings, problem)

    house = (InProcess if workers is None else partial(InWorkers, workers=workers))(
        running,
        config_path=config_path,
        ledger_path=None if ledger is None else config_path.parent / ledger,
        feed=place.feed,
        accounts=accounts,
        configured=lambda settings: records_of(settings.access, sources),
        reload=take_anew,
        own_key=place.own_key,
        in_flight=lambda: 0 if around.telemetry is None else around.telemetry.in_flight,
        request_log=around.request_log,
    )
    return place.server(house)


def reloaded(before: GatewaySettings, now: GatewaySettings, problem: str) -> Reloaded:
    """The result of reloading the file; problem: "" if it was accepted."""
    if problem:
        return Reloaded(error=problem)
    changed = changes(before, now)
    return Reloaded(changed=changed, at_next_start=wait_for_start(changed))
