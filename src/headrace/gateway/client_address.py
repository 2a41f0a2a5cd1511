"""The address a request comes from: the peer of its connection, or one that a trusted proxy saw.

`X-Forwarded-For` is believed only if the peer is one of `listen.trusted_proxies`, and only as far
as trusted proxies added to it: its right-most address that is not theirs. The rest may be invented
by the client. IPv6 is counted by its /64, all of which one client has.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from headrace.errors import ConfigError, shown

# The address travels with the headers under this name, which no header can have, as HTTP forbids a
# colon in it.
ADDRESS = ":client-address"
UNKNOWN = "unknown"

_FORWARDED_FOR = b"x-forwarded-for"
_MOST_HOPS = 32
_MOST_CHARS = 64
_V6_PREFIX = 64

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ClientAddresses:
    """A resolver of clients' addresses. `trusted` lists addresses and networks of proxies. Raises
    ConfigError for an invalid one."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = tuple(_network(at, text) for at, text in enumerate(trusted))

    def of_scope(self, scope: Scope) -> str:
        """The address of an ASGI request."""
        client = scope.get("client")
        forwarded = [value for name, value in scope["headers"] if name == _FORWARDED_FOR]
        return self.of(client[0] if client else "", b",".join(forwarded).decode("latin-1"))

    def of(self, peer: str, forwarded_for: str) -> str:
        """The address as it is counted; "unknown" for a connection without one (a Unix socket)."""
        address = _address(peer)
        if address is None:
            return UNKNOWN
        if self._trusted and self._is_trusted(address):
            address = self._seen_by_proxies(address, forwarded_for)
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((address, _V6_PREFIX), strict=False))
        return str(address)

    def _seen_by_proxies(self, peer: Address, forwarded_for: str) -> Address:
        """The nearest untrusted address. An unreadable one ends the search: its writer is not
        trusted."""
        nearest = peer
        for text in reversed(forwarded_for.rsplit(",", _MOST_HOPS)[-_MOST_HOPS:]):
            hop = _address(_without_port(text.strip()))
            if hop is None:
                return nearest
            nearest = hop
            if not self._is_trusted(hop):
                return nearest
        return nearest

    def _is_trusted(self, address: Address) -> bool:
        return any(
            address in network for network in self._trusted if network.version == address.version
        )


def _without_port(text: str) -> str:
    """Without the port that some proxies write: 203.0.113.7:4711, [2001:db8::1]:4711."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, mark, _ = text.partition(":")
    return host if mark and text.count(":") == 1 else text


def _address(text: str) -> Address | None:
    if len(text) > _MOST_CHARS:
        return None
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _network(at: int, text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"listen.trusted_proxies.{at}: {shown(text)} is not an address or a network like "
            "192.0.2.1 or 10.0.0.0/8"
        ) from error
