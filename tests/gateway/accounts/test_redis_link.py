"""What is taken for a Redis that does not answer, and what is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.gateway.accounts.redis_link import RedisLostError, connect
from tests.gateway.accounts.redis_server import RedisServer, redis_program

TIMEOUT_S = 0.1


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis")
    server.start()
    yield server
    server.kill()


async def test_one_that_answered_while_this_process_was_busy_is_there(redis: RedisServer) -> None:
    link = connect(redis.url, timeout_s=TIMEOUT_S)
    await link.ping()
    with redis.paused():
        asking = asyncio.ensure_future(link.evicts())
        await asyncio.sleep(0.02)
    time.sleep(4 * TIMEOUT_S)
    assert not await asking
    await link.close()


async def test_one_that_hangs_is_not(redis: RedisServer) -> None:
    link = connect(redis.url, timeout_s=TIMEOUT_S)
    await link.ping()
    with redis.paused():
        began_s = time.monotonic()
        asking = [asyncio.ensure_future(link.evicts()) for _ in range(40)]
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(one, RedisLostError) for one in told)
        # Those that waited for their turn have not waited for another time.
        assert time.monotonic() - began_s < 20 * TIMEOUT_S
    assert not await link.evicts()
    await link.close()
