"""A connected socket to a host: its addresses of both kinds are tried, a quarter second apart.

As RFC 8305 (happy eyeballs) says, so that a host whose IPv6 goes nowhere is reached over IPv4 at
once. asyncio's own loop has it; uvloop, which the gateway runs on, tries one address to its end
before the next.
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
    """The first that answers. Raises OSError: of the only address, or of all."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = in_turn([(family, address) for family, _, _, _, address in found])
    if len(addresses) == 1:
        return await _connected(addresses[0])
    connected, _, errors = await staggered_race(
        [partial(_connected, one) for one in addresses], _DELAY_S
    )
    if connected is not None:
        sock: socket.socket = connected
        return sock
    failures = [one for one in errors if isinstance(one, OSError)]
    if len({str(one) for one in failures}) == 1:
        raise failures[0]
    raise OSError("; ".join(str(one) for one in failures) or f"{host} has no address")


def in_turn(addresses: list[_Address]) -> list[_Address]:
    """The kinds by turns, beginning with the first one's; the order of each kind stays."""
    if not addresses:
        return []
    first = [one for one in addresses if one[0] == addresses[0][0]]
    others = [one for one in addresses if one[0] != addresses[0][0]]
    mixed = chain.from_iterable(zip_longest(first, others))
    return [one for one in mixed if one is not None]


async def _connected(address: _Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:  # the race is won by another, or nobody waits any more
        sock.close()
        raise
    return sock
