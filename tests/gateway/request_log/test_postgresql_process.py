"""A gateway of its own process whose database is killed under load and comes back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.settings.secret import Secret
from tests.cli.gateway_process import started
from tests.gateway.openai_provider import answers
from tests.gateway.request_log.postgresql_server import PostgresqlServer, running
from tests.gateway.upstream.scripted import served

pytestmark = pytest.mark.process

_WAIT_S = 30.0
# The longest wait between two tries is 5 s; the rest is what a slow machine takes.
_RECOVERY_S = 15.0


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    with running() as one:
        yield one


def config_in(folder: Path, origin: str, url: str) -> Path:
    (folder / "url").write_text(url, encoding="utf-8")
    path = folder / "gateway.yaml"
    path.write_text(
        "listen: {port: 0}\naccess: {require_key: false}\n"
        f"providers: {{a: {{base_url: '{origin}/v1', dialect: openai-chat}}}}\n"
        "models: {chat: [a/m]}\n"
        "request_log: {enabled: true, store: postgresql, url: 'file:url'}\n",
        encoding="utf-8",
    )
    return path


async def test_requests_are_answered_and_every_one_is_kept_once(
    server: PostgresqlServer, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    from headrace.gateway.request_log.postgresql_store import Database, PostgresqlReader

    url = server.new_database()
    ids: list[str] = []

    async def load(client: httpx.AsyncClient, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            asked = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
            asked["stream"] = len(ids) % 2 == 0
            told = await client.post("/v1/chat/completions", json=asked)
            assert told.status_code == 200
            ids.append(told.headers["x-request-id"])

    async def stands(client: httpx.AsyncClient) -> dict[str, int | str]:
        found: dict[str, int | str] = (await client.get("/health")).json()["request_log"]
        return found

    async with served(answers()) as provider:
        config = config_in(tmp_path, provider.origin, url)
        async with started(config) as process, process.client() as client:
            await load(client, 0.5)
            await asyncio.to_thread(server.kill)
            await load(client, 2.0)
            down = await stands(client)
            assert down["waiting"] and down["error"] and not down["lost"]
            starting = asyncio.to_thread(server.start)
            await asyncio.gather(starting, load(client, 0.5))
            came_back_s = time.monotonic()
            async with asyncio.timeout(_WAIT_S):
                while (await stands(client))["written"] != len(ids):
                    await asyncio.sleep(0.02)
            recovery_s = time.monotonic() - came_back_s
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0
    page = PostgresqlReader(Database(Secret(url, "a test"))).newest(RecordFilter(limit=100_000))
    assert sorted(one.id for one in page.records) == sorted(ids)
    assert {one.stream for one in page.records} == {True, False}
    assert recovery_s < _RECOVERY_S
    record_property("recovery_s", recovery_s)
