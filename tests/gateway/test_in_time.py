"""A bound in time breaks where nothing comes, and not where something came and nobody looked."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from headrace.gateway.in_time import InTime

TIMEOUT_S = 0.05
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


async def _received(sock: socket.socket) -> bytes:
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        async with InTime(TIMEOUT_S):
            return await reader.readexactly(1)
    finally:
        writer.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_came_while_the_loop_was_busy_is_in_time(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            asking = asyncio.ensure_future(_received(ours))
            await asyncio.sleep(TIMEOUT_S / 5)
            theirs.send(b"x")
            time.sleep(3 * TIMEOUT_S)
            assert await asking == b"x"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


@pytest.mark.parametrize("loop", LOOPS)
def test_what_does_not_come_is_given_up(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            with pytest.raises(TimeoutError):
                await _received(ours)
            async with InTime(TIMEOUT_S):
                pass
            await asyncio.sleep(3 * TIMEOUT_S)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


async def test_a_cancelled_one_is_cancelled() -> None:
    async def waits() -> None:
        async with InTime(10.0):
            await asyncio.sleep(10.0)

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
