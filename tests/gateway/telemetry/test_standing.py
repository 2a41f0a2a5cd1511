"""/health, /ready and who may look: what they tell with and without the master key."""

from __future__ import annotations

import os
import time

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.gateway import Gateway
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers, fails
from tests.gateway.telemetry.scraped import CHAT, settings
from tests.gateway.upstream.scripted import served


async def get(built: Gateway, path: str, key: str = "") -> Told:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return await ask(built.app, b"", path=path, method="GET", headers=headers)


async def test_health_names_models_targets_and_providers() -> None:
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), [])
        await ask(built.app, CHAT)
        told = (await get(built, "/health")).json
    assert told["status"] == "ok" and told["limits"] is None
    (target,) = told["models"]["chat"]["targets"]
    assert (target["target"], target["breaker"], target["usable"]) == ("a/m0", "closed", True)
    assert told["providers"]["a"]["connections"] == 1


async def test_ready_is_a_503_while_no_model_has_a_usable_target() -> None:
    async with served(fails(500)) as bad:
        config = settings(bad.origin, breaker={"least": 1}, retries={"attempts": 1})
        now_ns = time.monotonic_ns()
        built = gateway(config, [], clock_ns=lambda: now_ns)
        assert (await get(built, "/ready")).json["status"] == "ready"
        assert (await ask(built.app, CHAT)).status == 502
        told = await get(built, "/ready")
        assert told.status == 503 and told.json["status"] == "no_usable_target"
        assert told.json["models"]["chat"]["targets"][0]["for_s"] == 5.0
        assert (await get(built, "/health")).status == 200
        now_ns += 6 * 10**9
        assert (await get(built, "/ready")).status == 200, "a probe may go"


async def test_a_file_without_models_is_ready_by_its_providers() -> None:
    config = settings("http://127.0.0.1:9", models={}, aliases={})
    assert (await get(gateway(config, []), "/ready")).status == 200


async def test_only_the_master_key_opens_metrics_and_the_whole_of_health() -> None:
    accounts = Accounts(MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom)
    await accounts.start()
    config = settings("http://127.0.0.1:9", access={"master_key": "env:MASTER"})
    built = gateway(config, [], accounts=accounts, environ={"MASTER": "m4ster"})
    assert (await get(built, "/metrics")).status == 401
    assert (await get(built, "/metrics", "wrong")).status == 401
    assert (await get(built, "/metrics", "m4ster")).status == 200
    little = (await get(built, "/health")).json
    assert (little["limits"], little["models"], little["usable_models"]) == ("per process", 1, 1)
    assert "providers" not in little and b"a/m0" not in (await get(built, "/ready")).body
    whole = (await get(built, "/health", "m4ster")).json
    assert whole["accounts"]["counters"]["reach"] == "per process"
    assert whole["models"]["chat"]["usable"] is True


async def test_health_says_to_everybody_that_limits_cannot_be_counted() -> None:
    from headrace.gateway.accounts import RedisCounters, connect

    counters = RedisCounters(connect("redis://127.0.0.1:1/0"))
    accounts = Accounts(counters, now_ns=time.time_ns, random_bytes=os.urandom)
    await accounts.start()
    config = settings("http://127.0.0.1:9", access={"master_key": "env:MASTER"})
    built = gateway(config, [], accounts=accounts, environ={"MASTER": "m4ster"})
    told = await get(built, "/health")
    assert told.status == 200 and told.json["status"] == "degraded"
    assert (told.json["limits"], told.json["limits_counted"]) == ("cluster", False)
    # Keys that count by themselves then are served, so that it goes on to be asked.
    assert (await get(built, "/ready")).status == 200
    told = (await get(built, "/health", "m4ster")).json
    assert "Redis" in told["accounts"]["counters"]["problem"]
    await counters.close()


async def test_a_customers_key_opens_neither() -> None:
    from headrace.gateway.accounts.key import secret_of
    from headrace.gateway.accounts.records import KeyRecord, Records

    records = Records(keys=(KeyRecord(id="k", secrets=(secret_of("hr-customer"),)),))
    accounts = Accounts(
        MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom, configured=records
    )
    await accounts.start()
    built = gateway(settings("http://127.0.0.1:9", access={}), [], accounts=accounts)
    told = await get(built, "/metrics", "hr-customer")
    assert told.status == 403 and "access.master_key" in told.json["error"]["message"]
    assert "providers" not in (await get(built, "/health", "hr-customer")).json
