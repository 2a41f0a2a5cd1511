"""`headrace gateway`: from a configuration to a server, until a signal ends it.

At the first SIGINT or SIGTERM it stops accepting requests and answers those under way; at the
second, or after a while, the rest is cut off. SIGHUP reads the configuration again.
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
from dataclasses import replace
from functools import partial
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.counters import CountersState
from headrace.gateway.alerts.sender import AlertSender
from headrace.gateway.assemble import (
    CliOverrides,
    Current,
    Surroundings,
    log_changes,
    made,
    settings_from,
    settings_given,
    with_request_log,
)
from headrace.gateway.building.accounts import accounts_of, admits_nobody, records_of
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.listening import DRAIN_S, listen_until
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import read_text
from headrace.gateway.settings.secret import Sources
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.ticking import tick
from headrace.http.event_loop import run_in_loop
from headrace.http.listen import listen, url_of
from headrace.http.request_id import random_id
from headrace.http.signals import signals
from headrace.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

_SPANS_S = 2.0


def run(path: Path, given: CliOverrides, *, as_json: bool = False) -> int:
    """Serve until a signal. Raises HeadraceError if it cannot start."""
    text = read_text(path)
    settings = settings_given(text, path, given)
    configure_logging(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    ledger = ledger_of(path, settings)
    try:
        run_in_loop(_serve(path, text, settings, given, as_json, ledger))
    finally:
        if ledger is not None:
            ledger.close()
    return 0


def ledger_of(path: Path, settings: GatewaySettings) -> LedgerStore | None:
    """The configured ledger; None without one. Raises LedgerError."""
    own = settings.ledger
    if own.path is None:
        return None
    return LedgerStore.open(
        path.parent / own.path, retention_days=own.retention_days, wall_s=time.time
    )


async def _serve(
    path: Path,
    text: str,
    settings: GatewaySettings,
    given: CliOverrides,
    as_json: bool,
    ledger: LedgerStore | None,
) -> None:
    telling = AlertSender(
        settings.alerts,
        Sources(os.environ, path.parent),
        wall_s=time.time,
        source=random.Random(),
        new_id=random_id,
    )
    if settings.listen.workers > 1:
        from headrace.gateway.workers.parent import Parts, serve_with_workers

        await serve_with_workers(
            Parts(path, given, text, settings, ledger, telling),
            lambda sock, admin, counters: announce(
                url_of(sock), settings, as_json, admin, counters
            ),
        )
    else:
        await _serve_here(path, settings, given, as_json, ledger, telling)
    await telling.close()


async def _serve_here(
    path: Path,
    settings: GatewaySettings,
    given: CliOverrides,
    as_json: bool,
    ledger: LedgerStore | None,
    telling: AlertSender,
) -> None:
    accounts = await accounts_of(
        settings.access,
        Sources(os.environ, path.parent),
        now_ns=time.time_ns,
        random_bytes=os.urandom,
        on_alert=telling.budget,
        on_outage=telling.counters,
    )
    telemetry = Telemetry()
    around = with_request_log(surroundings(telemetry, ledger, telling), path, settings)
    place = None
    if settings.admin is not None:
        from headrace.gateway.admin.server import AdminPlace, admin_here

        place = AdminPlace.of(settings.admin, Sources(os.environ, path.parent))
        around = place.within(around)
    current = Current(made(path, settings, accounts, around))
    current.gateway.take_over()
    current.gateway.start()
    sock = listen(settings.listen.host, settings.listen.port)
    loop = asyncio.get_running_loop()
    reload = partial(_reload, path, given, accounts, current, ledger, around, telling)
    admin = None
    if place is not None:
        admin = admin_here(place, current, path, accounts, around, reload)
        admin.start()
    with signals() as heard:
        loop.add_signal_handler(signal.SIGHUP, reload)
        tell_lost = partial(_tell_lost, ledger, telling)
        ticking = asyncio.ensure_future(tick(accounts.tick, tell_lost, telling.tick))
        await listen_until(
            heard, current, sock, settings.listen,
            lambda: announce(
                url_of(sock), settings, as_json, None if admin is None else admin.url,
                accounts.describe().counters,
            ),
            current.make_ready,
        )  # fmt: skip
        ticking.cancel()
        loop.remove_signal_handler(signal.SIGHUP)
    if admin is not None:
        await admin.end()
    await current.drain(DRAIN_S)
    current.gateway.close()
    if around.request_log is not None:
        around.request_log.close()
    telemetry.close(_SPANS_S)
    await accounts.close()
    sock.close()


def surroundings(
    telemetry: Telemetry, ledger: LedgerStore | None, telling: AlertSender | None = None
) -> Surroundings:
    """The surroundings of a gateway in one process."""
    on_breaker = None if telling is None else telling.breaker
    on_taken_out = None if telling is None else telling.variant
    on_refused = None if telling is None else telling.refused
    around = Surroundings(
        telemetry=telemetry, on_breaker=on_breaker, on_refused=on_refused,
        on_taken_out=on_taken_out,
    )  # fmt: skip
    if ledger is None:
        return around
    parts = {"ledger": lambda: ledger.standing._asdict()}
    return replace(around, takers=(ledger.take,), parts=parts)


def _reload(
    path: Path,
    given: CliOverrides,
    accounts: Accounts,
    current: Current,
    ledger: LedgerStore | None,
    around: Surroundings,
    telling: AlertSender,
) -> str:
    """Read the configuration again; one with errors changes nothing. Return the problem, "" for
    none."""
    fresh = None
    try:
        settings = settings_from(path, given)
        fresh = made(path, settings, accounts, around)
        telling.check(settings.alerts)
        accounts.reconfigure(records_of(settings.access, Sources(os.environ, path.parent)))
    except HeadraceError as error:
        if fresh is not None:
            fresh.close()
        logger.error("the configuration was rejected and the previous one stays: %s", error)
        return str(error)
    log_changes(current.gateway.settings, settings)
    if ledger is not None:
        ledger.retention_days = settings.ledger.retention_days
    telling.reconfigure(settings.alerts)
    current.replace(fresh)
    logger.info("the configuration was read again: %d models", len(fresh.router.routes))
    return ""


def _tell_lost(ledger: LedgerStore | None, telling: AlertSender) -> None:
    if ledger is not None:
        telling.lost(ledger.standing.lost)


def announce(
    url: str,
    settings: GatewaySettings,
    as_json: bool,
    admin_url: str | None = None,
    counters: CountersState | None = None,
) -> None:
    """Print on standard output that requests are answered.

    `admin_url` is None without an admin page. `counters` is the state of the counters' store; None
    means that it is reachable.
    """
    models = list(settings.models)
    if as_json:
        admin = {} if admin_url is None else {"admin": admin_url}
        sys.stdout.write(json.dumps({"url": url, **admin, "models": models}) + "\n")
    else:
        named = ", ".join(models[:8]) + (" ..." if len(models) > 8 else "")
        sys.stdout.write(f"gateway at {url}/v1 for {named or 'provider/model names'}\n")
        if not settings.access.require_key:
            sys.stdout.write("no key is required: anyone who can reach it may use it\n")
        elif admits_nobody(settings.access):
            sys.stdout.write(
                "EVERY REQUEST IS REFUSED: a key is required and no key is known; add access.keys "
                "or access.store to the file, or write `access: {require_key: false}`\n"
            )
        else:
            sys.stdout.write(f"limits and budgets apply {_reach(settings)}\n")
            if counters is not None and not counters.reachable:
                sys.stdout.write(
                    f"NOT COUNTED NOW: {counters.problem}; until it is reachable keys are refused, "
                    "except those with when_stores_are_down: open, which each process counts\n"
                )
        if admin_url is not None:
            sys.stdout.write(f"admin page at {admin_url}/\n")
    sys.stdout.flush()


def _reach(settings: GatewaySettings) -> str:
    if settings.access.redis is not None:
        return "to the cluster, counted in Redis"
    if settings.listen.workers > 1:
        return "to this machine; with access.redis they apply to the cluster"
    return "to this process; with access.redis they apply to the cluster"
