"""A gateway with its admin API, in front of a scripted provider."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.sqlite_store import SqliteStore
from headrace.gateway.admin.app import admin_app
from headrace.gateway.admin.feed import Feed
from headrace.gateway.admin.gatehouse import Reloaded
from headrace.gateway.admin.in_process import InProcess
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.ledger.file import LedgerFile
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.secret import Secret, Sources
from tests.gateway.harness import gateway
from tests.gateway.openai_provider import Answer, answers
from tests.gateway.upstream.scripted import Scripted, served

KEY = "the-key-of-the-administrator"
OWN_KEY = "own-key-of-this-process"
PRICE = {"input": 1.0, "output": 2.0}
HOST = "http://127.0.0.1:4001"


class Lines(list[Entry]):
    """Entries of the gateway, told to the feed and written to a ledger as they come."""

    def __init__(self, feed: Feed, ledger: LedgerFile | None) -> None:
        super().__init__()
        self._feed = feed
        self._ledger = ledger

    def append(self, entry: Entry) -> None:
        super().append(entry)
        if self._ledger is not None:
            self._ledger.append([entry])
        self._feed.take(entry)


@dataclass
class House:
    """client: asks the admin API with the key. gateway: a reload may put another there."""

    client: httpx.AsyncClient
    app: ASGIApp
    gateway: Gateway
    lines: Lines
    feed: Feed
    accounts: Accounts
    provider: Scripted


@asynccontextmanager
async def admin(
    folder: Path,
    answer: Answer | None = None,
    *,
    entries: Sequence[Entry] | None = (),
    key: str | None = KEY,
    admin: dict[str, Any] | None = None,
    store: bool = True,
    wall_s: float | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """entries: already in the ledger; None: no ledger is kept. The provider's models are "chat" (of
    targets a/m and a/n) and "own" (of a/o)."""
    ledger_path = None if entries is None else folder / "ledger.sqlite3"
    ledger = None if ledger_path is None else LedgerFile(ledger_path)
    if ledger is not None:
        ledger.append(entries or ())
    feed = Feed()
    lines = Lines(feed, ledger)
    async with served(answer or answers()) as provider:
        written = {
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat",
                                "api_key": ["sk-of-the-provider"]}},
            "models": {
                "chat": {"targets": [{"model": "a/m", "price": PRICE}, {"model": "a/n"}],
                         "strategy": "ordered"},
                "own": {"targets": [{"model": "a/o", "price": PRICE}]},
            },
            "retries": {"attempts": 1},
            **settings,
        }  # fmt: skip
        accounts = await _accounts(folder, written, store=store)
        built = gateway(written, lines, accounts=accounts, own_key=OWN_KEY)
        house = House(None, None, built, lines, feed, accounts, provider)  # type: ignore[arg-type]
        ids = itertools.count(1)
        now_s = time.time() if wall_s is None else wall_s

        async def reload() -> Reloaded:
            return Reloaded(changed=("models.chat",))

        inside = InProcess(
            house,
            config_path=folder / "gateway.yaml",
            ledger_path=ledger_path,
            feed=feed,
            accounts=accounts,
            configured=lambda one: records_of(one.access, Sources({}, folder)),
            reload=reload,
            own_key=OWN_KEY,
            in_flight=lambda: 0,
        )
        own = AdminSettings(**{"require_key": key is not None, "key": key, **(admin or {})})
        house.app = admin_app(
            inside, own, None if key is None else Secret(key, "a test"),
            clock_s=time.monotonic, wall_s=lambda: now_s, new_id=lambda: f"try-{next(ids)}",
            ending=asyncio.Event(),
        )  # fmt: skip
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(house.app, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers) as client:
            house.client = client
            yield house
        built.close()
        await accounts.close()
        if ledger is not None:
            ledger.close()


async def _accounts(folder: Path, written: dict[str, Any], *, store: bool) -> Accounts:
    from headrace.config.yaml_file import Document
    from headrace.gateway.settings.read import parse_settings

    settings = parse_settings(Document(written, {}), "gateway.yaml")
    configured = records_of(settings.access, Sources({}, folder))
    there = {(one.level, one.name) for one in configured.groups}
    kept = None
    if store:
        kept = await SqliteStore.open(
            folder / "gateway.db",
            now_ns=time.time_ns,
            random_bytes=os.urandom,
            parent_elsewhere=lambda one: (one.level, one.name) in there,
        )
    accounts = Accounts(
        MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom, configured=configured,
        store=kept,
    )  # fmt: skip
    await accounts.start()
    return accounts
