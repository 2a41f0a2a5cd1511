"""`headrace gateway`: from a file to a server, until a signal ends it.

At the first SIGINT or SIGTERM no more requests are taken and those under way are answered; at the
second, or after a while, what is left is cut. SIGHUP reads the file anew.
"""

from __future__ import annotations

import asyncio
import gc
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
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.errors import amount_text
from headrace.gateway.building.accounts import accounts_of, records_of
from headrace.gateway.building.gateway import Gateway, gateway_of
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import read_settings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.telemetry.access_log import log_entry
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.http.client_limits import ClientLimits
from headrace.http.listen import listen, url_of
from headrace.http.request_id import random_id
from headrace.http.server import HttpServer
from headrace.http.signals import signals
from headrace.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

_GRACE_S = 600
_TICK_S = 1.0
_YOUNG_OBJECTS = 20_000
_SPANS_S = 2.0


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
    configure_logging(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    import uvloop

    ledger = ledger_of(path, settings)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(path, settings, given, as_json, ledger))
    finally:
        if ledger is not None:
            ledger.close()
    return 0


def _settings(path: Path, given: Given) -> GatewaySettings:
    settings = read_settings(path)
    host = settings.listen.host if given.host is None else given.host
    port = settings.listen.port if given.port is None else given.port
    own = msgspec.structs.replace(settings.listen, host=host, port=port)
    return msgspec.structs.replace(settings, listen=own)


def ledger_of(path: Path, settings: GatewaySettings) -> LedgerStore | None:
    """None where the file names none. Raises LedgerError."""
    own = settings.ledger
    if own.path is None:
        return None
    return LedgerStore.open(
        path.parent / own.path, retention_days=own.retention_days, wall_s=time.time
    )


def made(
    path: Path,
    settings: GatewaySettings,
    accounts: Accounts | None,
    ledger: LedgerStore | None = None,
    telemetry: Telemetry | None = None,
) -> Gateway:
    """The gateway of a file that was read. Raises HeadraceError."""

    def on_entry(entry: Entry) -> None:
        log_entry(entry)
        if ledger is not None:
            ledger.take(entry)

    named = tuple(str(path.parent / one) for one in settings.catalog)
    return gateway_of(
        settings,
        Catalog.load(folders(os.environ, named)),
        Sources(os.environ, path.parent),
        accounts=accounts,
        on_entry=on_entry,
        clock_ns=time.monotonic_ns,
        wall_s=time.time,
        source=random.Random(),
        new_id=random_id,
        parts={} if ledger is None else {"ledger": lambda: ledger.standing._asdict()},
        telemetry=telemetry,
    )


async def _serve(
    path: Path,
    settings: GatewaySettings,
    given: Given,
    as_json: bool,
    ledger: LedgerStore | None,
) -> None:
    accounts = await accounts_of(
        settings.access,
        Sources(os.environ, path.parent),
        now_ns=time.time_ns,
        random_bytes=os.urandom,
        on_alert=_alert,
    )
    telemetry = Telemetry()
    current = Current(made(path, settings, accounts, ledger, telemetry))
    current.gateway.take_over()
    own = settings.listen
    sock = listen(own.host, own.port)
    limits = ClientLimits(max_discarded_bytes=2 * own.max_body_bytes)
    http = HttpServer(current, sock, grace_s=_GRACE_S, limits=limits)
    loop = asyncio.get_running_loop()
    with signals() as heard:
        loop.add_signal_handler(
            signal.SIGHUP, _reload, path, given, accounts, current, ledger, telemetry
        )
        ticking = asyncio.ensure_future(_tick(accounts))
        # What is there by now stays: collections need not look at it. A request makes hundreds of
        # objects, nearly all of which go with it: looking after each 700 would be in vain.
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
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
    telemetry.close(_SPANS_S)
    await accounts.close()
    sock.close()


def _reload(
    path: Path,
    given: Given,
    accounts: Accounts,
    current: Current,
    ledger: LedgerStore | None,
    telemetry: Telemetry,
) -> None:
    """Take the file anew; one that is not right changes nothing."""
    try:
        settings = _settings(path, given)
        fresh = made(path, settings, accounts, ledger, telemetry)
        accounts.reconfigure(records_of(settings.access, Sources(os.environ, path.parent)))
    except HeadraceError as error:
        logger.error("the configuration was not taken, the one before goes on: %s", error)
        return
    if settings.ledger.path != current.gateway.settings.ledger.path:
        logger.warning("ledger.path: another file is taken at the next start")
    if ledger is not None:
        ledger.retention_days = settings.ledger.retention_days
    before, current.gateway = current.gateway, fresh
    fresh.take_over()
    before.close()
    logger.info("the configuration was read anew: %d models", len(fresh.router.routes))


def _alert(alert: Alert) -> None:
    used, limit = amount_text(alert.used, alert.unit), amount_text(alert.limit, alert.unit)
    logger.warning(
        "%s %s has used %s of %s %s for models %s",
        alert.level,
        alert.name,
        used,
        limit,
        alert.window.words,
        alert.model,
    )


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
