"""/health, /ready and who may look: what they tell with and without the master key."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers, fails
from tests.gateway.telemetry.scraped import CHAT, settings
from tests.gateway.upstream.scripted import served

_POSTS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages",
    "/v1/messages/count_tokens", "/api/chat", "/api/v1/chat/completions",
)  # fmt: skip


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
        config = settings(bad.origin, breaker={"min_attempts": 1}, retries={"attempts": 1})
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


async def test_the_key_for_metrics_opens_them_and_nothing_else() -> None:
    access = {"master_key": "env:MASTER", "metrics_key": "env:METRICS"}
    accounts = Accounts(MemoryCounters(), now_ns=time.time_ns, random_bytes=os.urandom)
    await accounts.start()
    environ = {"MASTER": "m4ster", "METRICS": "hr-to-see"}
    async with served(answers()) as provider:
        config = settings(provider.origin, access=access, admin={"key": "an-admin-key", "port": 0})
        built = gateway(config, [], accounts=accounts, environ=environ)
        assert (await get(built, "/metrics", "hr-to-see")).status == 200
        assert "providers" in (await get(built, "/health", "hr-to-see")).json
        assert (await get(built, "/ready", "hr-to-see")).json["models"]["chat"]["usable"] is True
        assert (await get(built, "/metrics", "m4ster")).status == 200
        for key in ("", "hr-to-se", "hr-to-see2"):
            assert (await get(built, "/metrics", key)).status == 401
            assert "providers" not in (await get(built, "/health", key)).json
        as_key = {"authorization": "Bearer hr-to-see"}
        for path in _POSTS:
            told = await ask(built.app, CHAT, path=path, headers=as_key)
            assert told.status == 401, (path, told.body)
        for path in ("/v1/models", "/v1/models/chat", "/api/tags", "/api/ps", "/api/v1/key"):
            assert (await get(built, path, "hr-to-see")).status == 401, path
        assert not provider.requests
        assert (await ask(built.app, CHAT, headers={"x-api-key": "m4ster"})).status == 200


async def test_with_a_key_for_metrics_they_are_closed_also_where_models_are_open() -> None:
    async with served(answers()) as provider:
        access = {"require_key": False, "metrics_key": "hr-to-see"}
        built = gateway(settings(provider.origin, access=access), [])
        assert (await ask(built.app, CHAT)).status == 200
        told = await get(built, "/metrics")
        assert told.status == 403 and "access.metrics_key" in told.json["error"]["message"]
        assert "providers" not in (await get(built, "/health")).json
        assert (await get(built, "/metrics", "hr-to-see")).status == 200


@pytest.mark.parametrize(
    "other",
    [
        {"master_key": "env:SAME"},
        {"keys": {"ci": {"key": "hr-the-same-key"}}},
        {"keys": {"ci": {"sha256": sha256(b"hr-the-same-key").hexdigest()}}},
    ],
)
def test_a_key_for_metrics_that_opens_models_is_refused(other: dict[str, Any]) -> None:
    config = {"access": {"metrics_key": "env:SAME", **other}}
    access = parse_settings(Document(config, {}), "gateway.yaml").access
    with pytest.raises(ConfigError, match=r"access\.metrics_key: access\..* is the") as refused:
        records_of(access, Sources({"SAME": "hr-the-same-key"}, Path()))
    assert "hr-the-same-key" not in str(refused.value)


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
