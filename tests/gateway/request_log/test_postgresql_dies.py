"""A database that is killed and started again while requests go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.request_log.written_log import WrittenLog
from headrace.gateway.telemetry.log_status import LogStanding
from tests.gateway.request_log.parts import line, log_of
from tests.gateway.request_log.postgresql_server import PostgresqlServer, running

_WAIT_S = 30.0
# The longest wait between two tries is 5 s; the rest is what a slow machine takes.
_RECOVERY_S = 15.0
_ENVIRON = "LOG_URL"


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    with running() as one:
        yield one


def log_at(url: str, folder: Path, **more: object) -> WrittenLog:
    return log_of(
        {"store": "postgresql", "url": f"env:{_ENVIRON}", **more}, folder, {_ENVIRON: url}
    )


async def until_written(log: WrittenLog, count: int) -> None:
    async with asyncio.timeout(_WAIT_S):
        while log.standing.written != count:
            await asyncio.sleep(0.01)


async def kept(log: WrittenLog) -> list[int]:
    page = await log.newest(RecordFilter(limit=100_000))
    return sorted(int(one.id.removeprefix("req-")) for one in page.records)


@pytest.mark.process
async def test_nothing_is_lost_or_written_twice(
    server: PostgresqlServer, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    log = log_at(server.new_database(), tmp_path)
    taken = 0

    async def load(seconds: float) -> None:
        nonlocal taken
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            log.take(line(taken))
            taken += 1
            await asyncio.sleep(0.001)

    recoveries = []
    for _ in range(2):
        await load(0.3)
        loading = asyncio.ensure_future(load(1.0))
        await asyncio.to_thread(server.kill)
        await loading
        assert log.standing.waiting and log.standing.error
        with pytest.raises(RequestLogError, match=r"^postgresql://127\.0\.0\.1/test_1: "):
            await log.newest(RecordFilter())
        loading = asyncio.ensure_future(load(0.5))
        await asyncio.to_thread(server.start)
        came_back_s = time.monotonic()
        await loading
        await until_written(log, taken)
        recoveries.append(time.monotonic() - came_back_s)
    assert log.standing == LogStanding(written=taken)
    assert await kept(log) == list(range(taken))
    assert max(recoveries) < _RECOVERY_S
    record_property("recovery_s", max(recoveries))
    log.close()


async def test_beyond_the_bound_lines_are_lost_and_counted(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    url = server.new_database()
    server.kill()
    big = b'{"model":"chat","x":"%s"}' % (b"a" * 100_000)
    log = log_at(url, tmp_path, max_waiting=50, max_waiting_bytes=2**20)
    for number in range(30):
        log.take(line(number, request=big))
    told = log.standing
    assert told.waiting == 10 and told.lost == 20
    assert 10 * 100_000 < told.waiting_bytes <= 2**20
    await asyncio.to_thread(server.start)
    await until_written(log, 10)
    assert await kept(log) == list(range(10)), "those that came first wait"
    log.take(line(99, request=b'{"x":"%s"}' % (b"a" * 2**20)))
    await until_written(log, 11)
    found = await log.find("req-99")
    assert found is not None and found.without_bodies == "too_large" and found.request is None
    log.close()


async def test_a_gateway_starts_while_the_database_is_down(
    server: PostgresqlServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.new_database().replace("postgres@", "postgres:hunter2secret@")
    server.kill()
    with caplog.at_level(logging.DEBUG):
        log = log_at(url, tmp_path)
        log.take(line(1))
        async with asyncio.timeout(_WAIT_S):
            while not log.standing.error:
                await asyncio.sleep(0.01)
        with pytest.raises(RequestLogError) as raised:
            await log.find("req-1")
        log.close()
    assert log.standing.lost == 1
    told = f"{caplog.text} {raised.value} {log.standing}"
    assert "hunter2secret" not in told and "postgresql://127.0.0.1/test_1" in told


async def test_a_table_of_a_newer_headrace_is_left_alone(
    server: PostgresqlServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import psycopg

    url = server.new_database()
    log = log_at(url, tmp_path)
    log.take(line(1))
    await until_written(log, 1)
    log.close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE headrace.request_log_version SET version = 99")
    newer = log_at(url, tmp_path)
    newer.take(line(2))
    newer.close()
    assert newer.standing.lost == 1 and "newer version" in caplog.text
    assert await kept(newer) == [1]


def test_an_address_that_is_none(tmp_path: Path) -> None:
    for url in ("mysql://u:secret@h/d", "postgresql://u:secret@h/d?no=1", "postgresql://[secret/d"):
        with pytest.raises(ConfigError, match="expected postgresql://") as raised:
            log_at(url, tmp_path)
        assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match="the environment has no LOG_URL"):
        log_of({"store": "postgresql", "url": f"env:{_ENVIRON}"}, tmp_path)
