"""One admin port for a gateway of several processes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.gateway_process import Process, started
from tests.gateway.admin.listening import events
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served

pytestmark = pytest.mark.process

KEY = "the-key-of-the-administrator"
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}


async def chatted(process: Process, key: str, requests: int) -> list[tuple[int, str | None]]:
    """Status and target of each, over a connection of its own, so that all workers get some."""
    found = []
    for _ in range(requests):
        async with process.client() as client:
            headers = {"authorization": f"Bearer {key}"}
            told = await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        found.append((told.status_code, told.headers.get("x-headrace-target")))
    return found


async def until(client: httpx.AsyncClient, path: str, done: Any) -> Any:
    async with asyncio.timeout(20):
        while not done(told := (await client.get(path)).json()):
            await asyncio.sleep(0.05)
    return told


async def test_it_shows_and_changes_all_workers(tmp_path: Path) -> None:
    async with served(answers()) as provider:
        config = tmp_path / "gateway.yaml"
        written = {
            "listen": {"workers": 2},
            "admin": {"port": 0, "key": KEY},
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"chat": {"targets": ["a/m", "a/n"], "strategy": "ordered"}},
            "access": {"store": "gateway.db"},
            "ledger": {"path": "ledger.sqlite3"},
        }
        config.write_text(json.dumps(written), encoding="utf-8")
        async with started(config) as process:
            headers = {"authorization": f"Bearer {KEY}"}
            url = process.announced["admin"]
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                await _used(process, client)
                config.write_text(json.dumps({**written, "models": {"chat": ["a/n"]}}), "utf-8")
                told = (await client.post("/api/reload")).json()
                assert (told["error"], told["changed"]) == (None, ["models.chat"])
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0


async def _used(process: Process, client: httpx.AsyncClient) -> None:
    key = (await client.post("/api/keys", json={"rpm": 1000, "label": "bot"})).json()["key"]
    async with asyncio.timeout(20):  # each worker hears of a new key within a second
        while any(status != 200 for status, _ in await chatted(process, key, 4)):
            await asyncio.sleep(0.1)
    assert set(await chatted(process, key, 6)) == {(200, "a/m")}
    routes = (await client.get("/api/routes")).json()
    assert routes["workers"] == 2
    (limit,) = (await client.get("/api/keys")).json()["keys"][0]["meters"]
    answered = await until(client, "/api/log", lambda told: len(told["lines"]) >= limit["used"])
    assert {one["entry"]["target"] for one in answered["lines"]} <= {"a/m", None}

    told = await client.post("/api/targets/a/m/breaker", json={"state": "open"})
    assert told.status_code == 200
    assert set(await chatted(process, key, 8)) == {(200, "a/n")}
    told = await client.post("/api/explain", json={"body": CHAT})
    assert [one["target"] for one in told.json()["candidates"]] == ["a/n"]
    for_key = await client.post("/api/explain", json={"body": CHAT, "key": "bot"})
    assert (for_key.status_code, for_key.json()) == (200, told.json())
    told = await client.post("/api/explain", json={"body": CHAT, "key": "nobody"})
    assert told.status_code == 404 and "no key has the id" in told.text
    told = await client.post("/api/explain", json={"body": {"model": "chatt"}})
    assert (told.status_code, told.json()["error"]["code"]) == (404, "model_not_found")

    asked = {"models": ["chat", "chat"], "messages": CHAT["messages"]}
    async with client.stream("POST", "/api/try", json=asked) as reply:
        ended = [one async for one in events(reply) if one["kind"] == "ended"]
    assert [one["prompt_tokens"] for one in ended] == [12, 12]
    lines = await until(client, "/api/log?key=admin", lambda told: len(told["lines"]) == 2)
    assert {one["entry"]["id"] for one in lines["lines"]} == {one["id"] for one in ended}
