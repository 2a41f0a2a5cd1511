"""A gateway made of its file, and the one that answers now."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from headrace.catalog import Catalog
from headrace.catalog.user_folder import folders
from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.building.gateway import Gateway, gateway_of
from headrace.gateway.held_bodies import HeldBodies
from headrace.gateway.own_answers import Everywhere
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.routing.told_responses import ToldResponses
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.changes import changes, wait_for_start
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import read_text, settings_of_text
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import OnRefused
from headrace.gateway.targets.health import OnBreaker
from headrace.gateway.telemetry.access_log import AccessLog
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.http.request_id import RandomIds

if TYPE_CHECKING:
    from headrace.gateway.request_log.written_log import WrittenLog

logger = logging.getLogger(__name__)


class CliOverrides(NamedTuple):
    """What the command line says in place of the file. None: what the file says."""

    host: str | None = None
    port: int | None = None
    workers: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What goes on from a configuration to the next. takers: hear each line of the ledger and must
    not wait. parts: what /health tells of others, by name. everywhere: who tells of all processes,
    None for one process. on_breaker: hears when a target's breaker opens or closes. on_refused:
    hears when a provider refuses a key. request_log: None where none is kept. own_key: what the
    admin page asks with on the data port."""

    telemetry: Telemetry | None = None
    takers: tuple[Callable[[Entry], None], ...] = ()
    parts: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    everywhere: Everywhere | None = None
    sticky: Sticky | None = None
    told_responses: ToldResponses = field(default_factory=ToldResponses)
    held_bodies: HeldBodies = field(default_factory=HeldBodies)
    on_breaker: OnBreaker | None = None
    on_refused: OnRefused | None = None
    on_taken_out: Callable[[TakenOut], None] | None = None
    request_log: WrittenLog | None = None
    own_key: str | None = None


class Current:
    """The gateway that answers now; another takes its place between two requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        # As long as they do something beside answers.
        self._past: list[Gateway] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """By the gateway of this moment; requests under way keep theirs."""
        await self.gateway.app(scope, receive, send)

    def make_ready(self) -> None:
        """What no request should have to wait for, and no start: dialects nobody spoke yet."""
        self.gateway.paths.make_all()

    def replace(self, fresh: Gateway) -> None:
        """Another answers from now on."""
        before, self.gateway = self.gateway, fresh
        fresh.take_over()
        fresh.start()
        before.close()
        self._past = [one for one in (*self._past, before) if one.is_busy]

    async def drain(self, within_s: float) -> None:
        """Wait so long for what is done beside answers, and end the rest."""
        await asyncio.gather(*(one.drain(within_s) for one in (*self._past, self.gateway)))


def settings_from(path: Path, given: CliOverrides) -> GatewaySettings:
    """Of the file as it is now. Raises ConfigError."""
    return settings_given(read_text(path), path, given)


def settings_given(text: str, path: Path, given: CliOverrides) -> GatewaySettings:
    """Of the file's text. Raises ConfigError."""
    if not text.strip():
        # So an editor leaves it for a moment; whoever means it says `models: {}`.
        raise ConfigError(f"{path} is empty; write its providers and models")
    settings = settings_of_text(text, str(path))
    listen = settings.listen
    own = msgspec.structs.replace(
        listen,
        host=listen.host if given.host is None else given.host,
        port=listen.port if given.port is None else given.port,
        workers=listen.workers if given.workers is None else given.workers,
    )
    return msgspec.structs.replace(settings, listen=own)


def log_changes(before: GatewaySettings, now: GatewaySettings) -> None:
    """What of a file that was read anew is another, and what is taken at the next start alone."""
    changed = changes(before, now)
    waiting = wait_for_start(changed)
    if now.request_log.enabled and not before.request_log.enabled:
        waiting += ("request_log.enabled",)
    logger.info(
        "changed: %s; secrets were read anew too, and breakers and resting keys begin anew",
        ", ".join(changed) or "none of the settings",
    )
    if waiting:
        logger.warning("at the next start alone: %s", ", ".join(waiting))


def with_request_log(around: Surroundings, path: Path, settings: GatewaySettings) -> Surroundings:
    """With the log that the file asks for; who ends the process closes it. Raises HeadraceError."""
    if not settings.request_log.enabled:
        return around
    from headrace.gateway.building.request_log import request_log_of

    log = request_log_of(settings.request_log, Sources(os.environ, path.parent), time.time)
    return replace(around, request_log=log)


def catalog_of(sources: Sources, settings: GatewaySettings) -> Catalog:
    """With the rows of the user's own folder and of those that the file names. Raises
    HeadraceError."""
    named = tuple(str(sources.folder / one) for one in settings.catalog)
    return Catalog.load(folders(sources.environ, named))


def made(
    path: Path,
    settings: GatewaySettings,
    accounts: Accounts | None,
    around: Surroundings | None = None,
) -> Gateway:
    """The gateway of a file that was read. Raises HeadraceError."""
    around = around or Surroundings()
    takers = (AccessLog(sys.stderr, settings.log.format).take, *around.takers)

    def on_entry(entry: Entry) -> None:
        for take in takers:
            take(entry)

    sources = Sources(os.environ, path.parent)
    return gateway_of(
        settings,
        catalog_of(sources, settings),
        sources,
        accounts=accounts,
        on_entry=on_entry,
        clock_ns=time.monotonic_ns,
        wall_s=time.time,
        source=random.Random(),
        new_id=RandomIds(),
        parts=around.parts,
        telemetry=around.telemetry,
        everywhere=around.everywhere,
        sticky=around.sticky,
        told_responses=around.told_responses,
        held_bodies=around.held_bodies,
        on_breaker=around.on_breaker,
        on_refused=around.on_refused,
        on_taken_out=around.on_taken_out,
        request_log=around.request_log,
        own_key=around.own_key,
    )
