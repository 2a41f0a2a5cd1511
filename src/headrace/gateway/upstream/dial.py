"""Connects a socket to a host, trying its IPv4 and IPv6 addresses a quarter second apart.

As in RFC 8305 (happy eyeballs), so that a host whose IPv6 is broken is reached over IPv4 at once.
asyncio's own loop has this; uvloop, which the gateway runs on, waits for one address to fail before
it tries the next.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.staggered import staggered_race
from functools import partial
from itertools import chain, zip_longest
from typing import Any

_DELAY_S = 0.25
_Address = tuple[socket.AddressFamily, Any]


async def dial(host: str, port: int) -> socket.socket:
    """The first connection made. Raises OSError: that of the only address, or of all."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = in_turn([(family, address) for family, _, _, _, address in infos])
    if len(addresses) == 1:
        return await _connected(addresses[0])
    connected, _, errors = await staggered_race(
        [partial(_connected, address) for address in addresses], _DELAY_S
    )
    if connected is not None:
        sock: socket.socket = connected
        return sock
    failures = [failure for failure in errors if isinstance(failure, OSError)]
    if len({str(failure) for failure in failures}) == 1:
        raise failures[0]
    raise OSError("; ".join(str(failure) for failure in failures) or f"{host} has no address")


def in_turn(addresses: list[_Address]) -> list[_Address]:
    """Alternates the address families, beginning with the first; the order within each stays."""
    if not addresses:
        return []
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    mixed = chain.from_iterable(zip_longest(first, others))
    return [address for address in mixed if address is not None]


async def _connected(address: _Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:  # another won the race, or the caller left
        sock.close()
        raise
    return sock
