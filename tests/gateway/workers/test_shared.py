"""What workers share besides limits: keys, sessions, alerts, standing, the admin's hand."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.gateway.accounts.sqlite_store import SqliteStore
from headrace.gateway.upstream.origin import Origin
from tests.gateway.alerts.receiver import SECRET, receiving
from tests.gateway.openai_provider import answers, fails
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import (
    CHAT,
    COST_NUSD,
    KEY,
    MASTER,
    PRICE,
    Running,
    running,
    settings_for,
    until,
)

pytestmark = pytest.mark.process

CHATS = "/v1/chat/completions"


def test_keys_that_are_made_and_what_was_spent(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            budget = {"budgets": [{"usd": 1, "per": "1d", "calendar": True}]}
            settings = settings_for(str(provider.origin), key=budget, store="gateway.db")
            async with running(tmp_path, settings) as gateway:
                store = await _store(tmp_path)
                made = (await store.create_key()).reveal()

                async def all_know() -> bool:
                    told = [await gateway.fresh("POST", CHATS, CHAT, made) for _ in range(16)]
                    return all(one.status == 200 for one in told)

                began_s = time.monotonic()
                await until(all_know)
                assert time.monotonic() - began_s < 10
                for _ in range(10):
                    assert (await gateway.fresh("POST", CHATS, CHAT)).status == 200
            # Once, and not once for each worker.
            spent = await store.spent(at_ms=int(time.time() * 1000))
            assert [one.amount for one in spent] == [10 * COST_NUSD]
            await store.close()

    asyncio.run(check())


def test_a_session_stays_with_its_target_in_every_worker(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            settings = settings_for(str(provider.origin))
            settings["models"]["chat"] = {
                "sticky": "session",
                "targets": [{"model": f"p/{name}", "price": PRICE} for name in "abcd"],
            }
            async with running(tmp_path, settings) as gateway:
                seen = Counter[str]()
                for number in range(12):
                    session = (("x-session-id", f"session-{number}"),)
                    targets = {await _target(gateway, session) for _ in range(10)}
                    assert len(targets) == 1
                    seen.update(targets)
                assert len(seen) > 1

    asyncio.run(check())


def test_alerts_are_told_once_for_all_workers(tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            served(answers()) as provider, served(fails(401)) as refuses, receiving() as receiver,
        ):  # fmt: skip
            key = {"budgets": [{"usd": 0.03, "per": "1d", "alerts": [0.5, 1.0]}]}
            settings = settings_for(str(provider.origin), key=key)
            nobody = Origin("http", "127.0.0.1", 9)
            settings["providers"]["gone"] = {"base_url": str(nobody)}
            settings["models"]["broken"] = [{"model": "gone/m", "price": PRICE}]
            wrong = {"base_url": f"{refuses.origin}/v1", "api_key": ["sk-wrong-0123456789"]}
            settings["providers"]["wrong"] = wrong
            settings["models"]["wrong"] = [{"model": "wrong/m", "price": PRICE}]
            settings["breaker"] = {"min_attempts": 2, "cooldown_s": 100}
            settings["retries"] = {"attempts": 1}
            settings["alerts"] = {"url": receiver.url, "secret": SECRET}
            async with running(tmp_path, settings) as gateway:
                told = await asyncio.gather(
                    *(gateway.fresh("POST", CHATS, CHAT) for _ in range(20))
                )
                assert Counter(one.status for one in told) == {200: 10, 429: 10}
                await receiver.has(2)
                broken = {**CHAT, "model": "broken"}
                for _ in range(60):
                    await gateway.fresh("POST", CHATS, broken, MASTER)
                await receiver.has(3)
                for _ in range(30):
                    await gateway.fresh("POST", CHATS, {**CHAT, "model": "wrong"}, MASTER)
                await receiver.has(4)
                assert len(refuses.requests) > 1, "several workers found out"
                health = await gateway.health()
                opened = [one["breakers_open"] for one in health["workers"]]
                assert ["gone/m"] in opened
                (target,) = health["models"]["broken"]["targets"]
                assert target["breaker"] == "open"
            posts = [post.json for post in receiver.posts]
            assert all(post.is_signed for post in receiver.posts)
            assert sorted(one["event"] for one in posts) == [
                "breaker.open", "budget.threshold", "budget.threshold", "key.refused",
            ]  # fmt: skip
            thresholds = [one["data"].get("threshold") for one in posts]
            assert {one for one in thresholds if one} == {0.5, 1.0}
            log = gateway.log.read_text()
            assert SECRET not in log and "abc123" not in log and "of-a-secret" not in log

    asyncio.run(check())


def test_the_admins_hand_reaches_every_worker(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            settings = settings_for(str(provider.origin))
            admin_key = "an-admin-key-0123456789"
            settings["admin"] = {"port": 0, "key": admin_key}
            async with running(tmp_path, settings) as gateway:
                admin = gateway.at(gateway.told["admin"])
                overview = await admin.fresh("GET", "/api/overview", key=admin_key)
                assert overview.status == 200
                out = {"state": "open"}
                path = "/api/targets/p/m/breaker"
                told = await admin.fresh("POST", path, out, key=admin_key)
                assert told.status == 200, told.body

                async def nobody_asks() -> bool:
                    told = [await gateway.fresh("POST", CHATS, CHAT) for _ in range(16)]
                    return all(one.status != 200 for one in told)

                await until(nobody_asks)
                told = await admin.fresh("POST", "/api/reload", {}, key=admin_key)
                assert told.status == 200, told.body
                assert (await gateway.fresh("POST", CHATS, CHAT)).status == 200

    asyncio.run(check())


async def _target(gateway: Running, headers: tuple[tuple[str, str], ...]) -> str:
    pool = gateway.new_pool()
    try:
        told = await gateway.send("POST", CHATS, CHAT, KEY, pool, headers)
        assert told.status == 200
        return told.headers["x-headrace-target"]
    finally:
        pool.close()


async def _store(folder: Path) -> SqliteStore:
    return await SqliteStore.open(
        folder / "gateway.db", now_ns=time.time_ns, random_bytes=os.urandom
    )
