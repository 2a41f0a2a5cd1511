"""Makes a gateway from its configuration, and holds the current one."""

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
    """Settings from the command line, which replace those of the file unless they are None."""

    host: str | None = None
    port: int | None = None
    workers: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The state of a process that outlives a configuration."""

    telemetry: Telemetry | None = None
    takers: tuple[Callable[[Entry], None], ...] = ()
    """Called with each ledger line; must not wait."""
    parts: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """Further parts of /health, by name."""
    everywhere: Everywhere | None = None
    """Reports on all processes; None if there is one."""
    sticky: Sticky | None = None
    told_responses: ToldResponses = field(default_factory=ToldResponses)
    held_bodies: HeldBodies = field(default_factory=HeldBodies)
    on_breaker: OnBreaker | None = None
    """Called when a target's breaker opens or closes."""
    on_refused: OnRefused | None = None
    """Called when a provider refuses a key."""
    on_taken_out: Callable[[TakenOut], None] | None = None
    """Called when an A/B variant is taken out."""
    request_log: WrittenLog | None = None
    """None without a request log."""
    own_key: str | None = None
    """The key of the admin page on the data port."""


class Current:
    """The current gateway; another may replace it between two requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        # Earlier gateways that still do something besides answering.
        self._past: list[Gateway] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the current gateway, which it keeps."""
        await self.gateway.app(scope, receive, send)

    def make_ready(self) -> None:
        """Make what neither a request nor the start should wait for: dialects not yet used."""
        self.gateway.paths.make_all()

    def replace(self, fresh: Gateway) -> None:
        """Use another gateway from now on."""
        before, self.gateway = self.gateway, fresh
        fresh.take_over()
        fresh.start()
        before.close()
        self._past = [past for past in (*self._past, before) if past.is_busy]

    async def drain(self, within_s: float) -> None:
        """Wait up to `within_s` for work besides answers, then end the rest."""
        await asyncio.gather(*(gateway.drain(within_s) for gateway in (*self._past, self.gateway)))


def settings_from(path: Path, given: CliOverrides) -> GatewaySettings:
    """The settings of the file as it is now. Raises ConfigError."""
    return settings_given(read_text(path), path, given)


def settings_given(text: str, path: Path, given: CliOverrides) -> GatewaySettings:
    """The settings of the file's text. Raises ConfigError."""
    if not text.strip():
        # Editors leave a file empty for a moment; an intended one has `models: {}`.
        raise ConfigError(f"{path} is empty; add its providers and models")
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
    """Log which settings changed in a file read again, and which take effect at the next start."""
    changed = changes(before, now)
    waiting = wait_for_start(changed)
    if now.request_log.enabled and not before.request_log.enabled:
        waiting += ("request_log.enabled",)
    logger.info(
        "changed: %s; secrets were read again too, and breakers and resting keys start afresh",
        ", ".join(changed) or "no settings",
    )
    if waiting:
        logger.warning("in effect at the next start only: %s", ", ".join(waiting))


def with_request_log(around: Surroundings, path: Path, settings: GatewaySettings) -> Surroundings:
    """Add the configured request log; whoever ends the process closes it. Raises HeadraceError."""
    if not settings.request_log.enabled:
        return around
    from headrace.gateway.building.request_log import request_log_of

    log = request_log_of(settings.request_log, Sources(os.environ, path.parent), time.time)
    return replace(around, request_log=log)


def catalog_of(sources: Sources, settings: GatewaySettings) -> Catalog:
    """The catalog with the rows of the user's folder and of the configured folders. Raises
    HeadraceError."""
    named = tuple(str(sources.folder / folder) for folder in settings.catalog)
    return Catalog.load(folders(sources.environ, named))


def made(
    path: Path,
    settings: GatewaySettings,
    accounts: Accounts | None,
    around: Surroundings | None = None,
) -> Gateway:
    """Make the gateway of a configuration. Raises HeadraceError."""
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
