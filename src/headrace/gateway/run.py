"""`headrace gateway`: from a file to a server, until a signal ends it.

At the first SIGINT or SIGTERM no more requests are taken and those under way are answered; at the
second, or after a while, what is left is cut. SIGHUP reads the file anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from headrace.catalog import Catalog
from headrace.catalog.user_folder import folders
from headrace.errors import HeadraceError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.gateway import Gateway, gateway_of
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import read_settings
from headrace.gateway.settings.secret import Sources
from headrace.http.client_limits import ClientLimits
from headrace.http.listen import listen, url_of
from headrace.http.request_id import random_id
from headrace.http.server import HttpServer
from headrace.http.signals import signals
from headrace.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

_GRACE_S = 600
_TICK_S = 1.0


class Given(NamedTuple):
    """What the command line says in place of the file. None: what the file says."""

    host: str | None = None
    port: int | None = None


class Current:
    """The gateway that answers now; another takes its place between two requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """By the gateway of this moment; requests under way keep theirs."""
        await self.gateway.app(scope, receive, send)


def run(path: Path, given: Given, *, as_json: bool = False) -> int:
    """Serve until a signal comes. Raises HeadraceError for what cannot be started."""
    settings = _settings(path, given)
    configure_logging("info", "text", sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(path, settings, given, as_json))
    return 0


def _settings(path: Path, given: Given) -> GatewaySettings:
    settings = read_settings(path)
    host = settings.listen.host if given.host is None else given.host
    port = settings.listen.port if given.port is None else given.port
    own = msgspec.structs.replace(settings.listen, host=host, port=port)
    return msgspec.structs.replace(settings, listen=own)


def made(path: Path, settings: GatewaySettings, accounts: Accounts | None) -> Gateway:
    """The gateway of a file that was read. Raises HeadraceError."""
    named = tuple(str(path.parent / one) for one in settings.catalog)
    return gateway_of(
        settings,
        Catalog.load(folders(os.environ, named)),
        Sources(os.environ, path.parent),
        accounts=accounts,
        on_entry=_log,
        clock_ns=time.monotonic_ns,
        wall_s=time.time,
        source=random.Random(),
        new_id=random_id,
    )


async def _serve(path: Path, settings: GatewaySettings, given: Given, as_json: bool) -> None:
    accounts = Accounts(MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom)
    await accounts.start()
    current = Current(made(path, settings, accounts))
    own = settings.listen
    sock = listen(own.host, own.port)
    limits = ClientLimits(max_discarded_bytes=2 * own.max_body_bytes)
    http = HttpServer(current, sock, grace_s=_GRACE_S, limits=limits)
    loop = asyncio.get_running_loop()
    with signals() as heard:
        loop.add_signal_handler(signal.SIGHUP, _reload, path, given, accounts, current)
        ticking = asyncio.ensure_future(_tick(accounts))
        http.start()
        _announce(url_of(sock), settings, as_json)
        await heard.stop.wait()
        http.stop()
        ending = asyncio.ensure_future(http.ended(_GRACE_S))
        hurried = asyncio.ensure_future(heard.hurry.wait())
        await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
        http.cut()
        await ending
        hurried.cancel()
        ticking.cancel()
        loop.remove_signal_handler(signal.SIGHUP)
    current.gateway.close()
    await accounts.close()
    sock.close()


def _reload(path: Path, given: Given, accounts: Accounts, current: Current) -> None:
    """Take the file anew; one that is not right changes nothing."""
    try:
        fresh = made(path, _settings(path, given), accounts)
    except HeadraceError as error:
        logger.error("the configuration was not taken, the one before goes on: %s", error)
        return
    before, current.gateway = current.gateway, fresh
    before.close()
    logger.info("the configuration was read anew: %d models", len(fresh.router.routes))


async def _tick(accounts: Accounts) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        await accounts.tick()


def _announce(url: str, settings: GatewaySettings, as_json: bool) -> None:
    models = list(settings.models)
    if as_json:
        sys.stdout.write(json.dumps({"url": url, "models": models}) + "\n")
    else:
        named = ", ".join(models[:8]) + (" ..." if len(models) > 8 else "")
        sys.stdout.write(f"gateway at {url}/v1 for {named or 'provider/model names'}\n")
        if not settings.access.require_key:
            sys.stdout.write("anybody who reaches it may use it: access.require_key is false\n")
    sys.stdout.flush()


def _log(entry: Entry) -> None:
    cost = "unknown" if entry.cost_nusd is None else f"${entry.cost_nusd / 1e9:.6f}"
    logger.info(
        "%s %s %s -> %s %d %.0f ms, overhead %d us, cost %s%s",
        entry.id,
        entry.outcome,
        entry.model,
        entry.target or "nobody",
        entry.status,
        entry.total_ms,
        entry.overhead_us,
        cost,
        f": {entry.error[:200]}" if entry.error else "",
    )
