"""Idle connections to Redis are closed whatever closing them says, unless it is told to stop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from headrace.gateway.redis_idle import close_idle


def client(closing: Any) -> SimpleNamespace:
    async def disconnect(inuse_connections: bool = True) -> None:
        assert not inuse_connections
        await closing()

    return SimpleNamespace(connection_pool=SimpleNamespace(disconnect=disconnect))


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ConnectionResetError(), RedisConnectionError("gone")]
)
async def test_what_closing_says_is_of_no_matter(error: BaseException) -> None:
    async def fails() -> None:
        raise error

    await close_idle(client(fails))


async def test_of_two_that_wait_for_one_connection_only_who_is_cancelled_stops() -> None:
    closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        await closed

    one, other = (asyncio.create_task(close_idle(client(waits))) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait((one, other))
    assert one.cancelled()
    assert not other.cancelled() and other.exception() is None


async def test_a_bound_in_time_holds() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await close_idle(client(asyncio.Event().wait))
