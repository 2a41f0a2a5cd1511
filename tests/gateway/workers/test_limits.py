"""Limits and budgets hold over all workers, in Redis and without."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import (
    COST_NUSD,
    Running,
    ledger_rows,
    running,
    settings_for,
    until,
)

pytestmark = pytest.mark.process

REQUESTS = 200
TEN = [
    pytest.param({"limits": [{"rpm": 10}]}, id="requests"),
    pytest.param({"budgets": [{"usd": 0.03, "per": "1d"}]}, id="dollars"),
]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis")
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("ten", TEN)
def test_ten_of_two_hundred_are_served_with_redis(
    tmp_path: Path, redis: RedisServer, ten: dict[str, Any]
) -> None:
    asyncio.run(_ten_are_served(tmp_path, ten, "cluster", redis=redis.url))


@pytest.mark.parametrize("ten", TEN)
def test_ten_of_two_hundred_are_served_by_the_parents_counters(
    tmp_path: Path, ten: dict[str, Any]
) -> None:
    asyncio.run(_ten_are_served(tmp_path, ten, "machine"))


async def _ten_are_served(folder: Path, ten: dict[str, Any], reach: str, **access: Any) -> None:
    async with served(answers()) as provider:
        settings = settings_for(str(provider.origin), key=ten, **access)
        async with running(folder, settings) as gateway:
            assert (await gateway.health())["limits"] == reach
            told = await asyncio.gather(*(gateway.chat() for _ in range(REQUESTS)))
            statuses = Counter(one.status for one in told)
            # On a machine that is busy with other things Redis may answer too late: refused then.
            late = statuses.pop(503, 0) if reach == "cluster" else 0
            served_by_provider = len(provider.requests)
            assert served_by_provider == statuses[200] <= 10
            assert late or statuses == {200: 10, 429: REQUESTS - 10}
            # A line follows the end of its answer.
            await until(lambda: _counted(gateway))
            await until(lambda: _is_refused(gateway))
            served_by_provider = len(provider.requests)
            assert served_by_provider <= 10
    rows = ledger_rows(folder)
    assert len(rows) > REQUESTS
    assert sum(cost or 0 for _, cost, _, _ in rows) == served_by_provider * COST_NUSD


async def _counted(gateway: Running) -> bool:
    return await gateway.counter("headrace:gateway_requests_total") == REQUESTS


async def _is_refused(gateway: Running) -> bool:
    """By the limit, and not since Redis was too late a moment ago."""
    told = await gateway.chat()
    return told.status == 429 and int(told.headers.get("retry-after", "0")) > 0
