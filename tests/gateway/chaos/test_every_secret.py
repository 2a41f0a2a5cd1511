"""With a secret of every kind in the file: none is in anything written, told or shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.gateway.admin.operations import OPERATIONS
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.chaos.every_secret import (
    ADMIN_KEY,
    AWS_KEY_ID,
    CLIENT_KEY,
    MASTER_KEY,
    METRICS_KEY,
    MODELS,
    SECRETS,
    Quoting,
    environment,
    settings,
    write_files,
)
from tests.gateway.chaos.spoiled_files import wrong_files
from tests.gateway.chaos.written_secrets import found_in
from tests.gateway.request_log.postgresql_server import PostgresqlServer
from tests.gateway.request_log.postgresql_server import running as postgresql
from tests.gateway.upstream.scripted import Scripted, served
from tests.gateway.workers.gateway_process import Running, running, until

QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    "/api/chat": {"messages": [{"role": "user", "content": "Hi"}]},
}
GOOD = {"model": "good", **QUESTIONS["/v1/chat/completions"]}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis", password=SECRETS["redis password"])
    server.start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def gateway_with_all(
    folder: Path, redis: RedisServer, request_log: dict[str, Any]
) -> AsyncIterator[tuple[Running, Scripted, dict[str, bytes], list[str]]]:
    """Once every model was asked. Also the provider, what clients were told, and the names of files
    that hold secrets as they should."""
    folder.mkdir()
    async with served(Quoting().answer) as provider, served(_refuses) as receiver:
        names = write_files(folder, str(provider.origin))
        given = settings(
            str(provider.origin), redis=redis.url, request_log=request_log,
            alerts=str(receiver.origin),
        )  # fmt: skip
        async with running(folder, given, workers=1) as gateway:
            told = await ask_all(gateway)

            async def was_alerted() -> bool:
                return bool(receiver.requests)

            await until(was_alerted)  # of the key's budget, and refused to hear it
            yield gateway, provider, told, ["gateway.yaml", *names]


async def _refuses(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """A webhook's receiver that quotes what it does not take."""
    writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n" % len(request) + request)


async def ask_all(gateway: Running) -> dict[str, bytes]:
    """Every model in every dialect; what clients were told."""
    told = {}
    for model in MODELS:
        for path, question in QUESTIONS.items():
            for stream in (False, True):
                body = {"model": model, "stream": stream, **question}
                answer = await gateway.send("POST", path, body, CLIENT_KEY)
                if model == "good":
                    assert answer.status == 200, answer.body
                else:
                    assert answer.status >= 400, (model, answer.body)
                name = f"{path} of {model}, stream {stream}"
                told[name] = str(answer.headers).encode() + answer.body
    return told


async def see_all(gateway: Running, ids: list[str]) -> tuple[dict[str, bytes], list[str]]:
    """Every operation of the admin API that shows something; and keys that were made there."""
    admin = gateway.at(gateway.told["admin"])
    told: dict[str, bytes] = {}
    made: list[str] = []

    async def see(method: str, path: str, body: Any = None, key: str = ADMIN_KEY) -> Any:
        answer = await admin.fresh(method, path, body, key=key)
        shown = str(answer.headers).encode() + answer.body
        told[f"{method} {path} {len(told)}"] = shown
        return answer

    path = "/api/keys"
    for body in ({"label": "made"}, {}):
        answer = await admin.fresh("POST", path, body, key=ADMIN_KEY)
        assert answer.status in (200, 201), answer.body
        made.append(answer.json["key"])  # shown this once
        path = f"/api/keys/{answer.json['id']}/rotate"
    seen = 0
    for one in OPERATIONS:
        if one.method != "GET" or one.events is not None:
            continue
        for place in ids if one.places else [""]:
            path = one.path.replace("{id:path}", place)
            assert "{" not in path, path
            answer = await see("GET", path)
            assert answer.status == 200, (path, answer.body)
            seen += 1
    assert seen > 6
    for path in ("/", "/api/openapi.json", "/api/usage?format=csv&by=key,model", "/api/nothing"):
        await see("GET", path)
    for model in MODELS:
        await see("POST", "/api/explain", {"body": {"model": model, "messages": []}})
    messages = [{"role": "user", "content": "Hi"}]
    await see("POST", "/api/try", {"models": list(MODELS), "messages": messages})
    await see("POST", "/api/reload")
    for key in (CLIENT_KEY, MASTER_KEY, METRICS_KEY, ADMIN_KEY + "x"):
        assert (await see("GET", "/api/config", key=key)).status == 401
    return told, made


async def break_the_file(gateway: Running) -> None:
    """Reload it, wrong in some of the ways; each is told in the log."""
    good = gateway.config.read_text()
    for text in [*wrong_files(yaml.safe_load(good))][::9]:
        before = gateway.log.stat().st_size
        gateway.reload(text)

        async def told(size: int = before) -> bool:
            return gateway.log.stat().st_size > size

        await until(told)
    gateway.config.write_text(good)


def of_folder(folder: Path, without: list[str]) -> dict[str, bytes]:
    """All that was written there, with what SQLite has not yet moved into its files."""
    return {
        one.name: one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and one.name not in without
    }


@pytest.mark.load
async def test_with_the_request_log_in_sqlite(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "gateway"
    async with gateway_with_all(folder, redis, {"path": "log.sqlite3"}) as (
        gateway, provider, told, without,
    ):  # fmt: skip
        redis.kill()
        await gateway.send("POST", "/v1/chat/completions", GOOD, CLIENT_KEY)
        redis.start()
        ids = [one.split("'x-request-id': '")[1].split("'")[0] for one in _heads(told)]
        shown, made = await see_all(gateway, ids[::7])
        told.update(shown)
        for path in ("/metrics", "/health", "/ready", "/v1/models"):
            told[path] = (await gateway.fresh("GET", path, key=MASTER_KEY)).body
            told[f"{path} again"] = (await gateway.fresh("GET", path, key=METRICS_KEY)).body
        await break_the_file(gateway)
        told.update({f"open {one}": data for one, data in of_folder(folder, without).items()})
    written = of_folder(folder, without)
    assert {"log", "ledger.sqlite3", "log.sqlite3", "keys.sqlite3"} <= written.keys()
    assert any(one.endswith("-wal") for one in told), "the newest lines are not yet in the files"
    assert b"DEBUG" in written["log"] and b"Traceback" not in written["log"]
    sent = b"".join(provider.requests)
    for name in SECRETS:  # what was never used cannot have been told
        if name.startswith(("provider", "aws session", "entra", "google token", "guardrail h")):
            assert SECRETS[name].encode() in sent or "client" in name, name
    assert AWS_KEY_ID.encode() in sent
    found = found_in({**told, **written}, [*SECRETS.values(), *made, AWS_KEY_ID])
    assert not found, f"{len(found)}\n" + "\n".join(found[:10])


def _heads(told: dict[str, bytes]) -> list[str]:
    return [one.decode() for one in told.values() if b"'x-request-id': '" in one]


@pytest.fixture
def database() -> Iterator[PostgresqlServer]:
    with postgresql() as server:
        yield server


@pytest.mark.process
async def test_with_the_request_log_in_postgresql(
    tmp_path: Path, redis: RedisServer, database: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "gateway"
    url = database.new_database()
    secret = url.replace("postgres@", f"postgres:{SECRETS['postgresql password']}@")
    store = {"store": "postgresql", "url": secret}
    async with gateway_with_all(folder, redis, store) as (gateway, _, told, without):

        async def has_written() -> bool:
            return bool((await _health(gateway))["request_log"]["written"] >= len(told))

        await until(has_written)
        await asyncio.to_thread(database.kill)
        await gateway.send("POST", "/v1/chat/completions", GOOD, CLIENT_KEY)

        async def has_failed() -> bool:
            return bool((await _health(gateway))["request_log"]["error"])

        await until(has_failed)
        told["/health"] = json.dumps(await _health(gateway)).encode()
        admin = gateway.at(gateway.told["admin"])
        for path in ("/api/log?text=x&in=bodies", "/api/config", "/api/overview", "/api/about"):
            answer = await admin.fresh("GET", path, key=ADMIN_KEY)
            told[path] = str(answer.headers).encode() + answer.body
        await asyncio.to_thread(database.start)
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT LIKE 'pg_%'"
            " AND schemaname <> 'information_schema'"
        ).fetchall()
        for (table,) in tables:
            rows = connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall()
            told[f"table {table}"] = "\n".join(row[0] for row in rows).encode()
    kept = sum(len(data) for name, data in told.items() if name.startswith("table "))
    assert kept > 10_000, "requests and answers are in the database"
    found = found_in({**told, **of_folder(folder, without)}, SECRETS.values())
    assert not found, f"{len(found)}\n" + "\n".join(found[:10])


async def _health(gateway: Running) -> Any:
    return (await gateway.fresh("GET", "/health", key=MASTER_KEY)).json
