"""A socket to a host of several addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from headrace.gateway.upstream.dial import dial, in_turn

V4, V6 = socket.AF_INET, socket.AF_INET6


def test_kinds_of_addresses_take_turns() -> None:
    found: list[tuple[socket.AddressFamily, Any]] = [(V6, 1), (V6, 2), (V6, 3), (V4, 4), (V4, 5)]
    assert in_turn(found) == [(V6, 1), (V4, 4), (V6, 2), (V4, 5), (V6, 3)]
    assert in_turn(found[:2]) == found[:2] and in_turn([]) == []


async def _dialled(port: int, addresses: list[tuple[socket.AddressFamily, Any]]) -> Any:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(host: str, port: int, **more: Any) -> list[Any]:
        return [(family, socket.SOCK_STREAM, 6, "", where) for family, where in addresses]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]
    with await dial("provider.example", port) as sock:
        return sock.getpeername()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, None])
def test_an_address_that_refuses_is_passed_over(loop_factory: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = listening.getsockname()
        with socket.create_server(("127.0.0.1", 0)) as other:
            closed = other.getsockname()
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            assert runner.run(_dialled(here[1], [(V4, closed), (V4, here)])) == here
            with pytest.raises(ConnectionRefusedError):
                runner.run(_dialled(here[1], [(V4, closed), (V4, closed)]))


def test_the_loop_of_the_gateway_dials_too() -> None:
    async def both(port: int) -> tuple[int, int]:
        with await dial("localhost", port) as first, await dial("127.0.0.1", port) as second:
            return first.getpeername()[1], second.getpeername()[1]

    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        port = listening.getsockname()[1]
        assert runner.run(both(port)) == (port, port)
