"""Where a request comes from: the peer of its connection, or whom a proxy of ours saw.

`X-Forwarded-For` is believed only where the peer is one of `listen.trusted_proxies`, and of what it
says only what trusted proxies added: its right-most address that is none of theirs. All else in it
is what a client made up. IPv6 is counted by its /64, of which one client has all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from headrace.errors import ConfigError, shown

# Under it the address travels with the headers; no header can have this name, as HTTP forbids a
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
    """trusted: addresses and networks of proxies. Raises ConfigError for what is none."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = tuple(_network(at, one) for at, one in enumerate(trusted))

    def of_scope(self, scope: Scope) -> str:
        """Of a request of ASGI."""
        client = scope.get("client")
        forwarded = [value for name, value in scope["headers"] if name == _FORWARDED_FOR]
        return self.of(client[0] if client else "", b",".join(forwarded).decode("latin-1"))

    def of(self, peer: str, forwarded_for: str) -> str:
        """As it is counted; "unknown" where the connection has no address (a Unix socket)."""
        found = _address(peer)
        if found is None:
            return UNKNOWN
        if self._trusted and self._is_trusted(found):
            found = self._seen_by_proxies(found, forwarded_for)
        if isinstance(found, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((found, _V6_PREFIX), strict=False))
        return str(found)

    def _seen_by_proxies(self, peer: Address, forwarded_for: str) -> Address:
        """What cannot be read ends the search: who wrote that is not trusted."""
        found = peer
        for text in reversed(forwarded_for.rsplit(",", _MOST_HOPS)[-_MOST_HOPS:]):
            hop = _address(_without_port(text.strip()))
            if hop is None:
                return found
            found = hop
            if not self._is_trusted(hop):
                return found
        return found

    def _is_trusted(self, address: Address) -> bool:
        return any(address in one for one in self._trusted if one.version == address.version)


def _without_port(text: str) -> str:
    """Some proxies write it: 203.0.113.7:4711, [2001:db8::1]:4711."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, mark, _ = text.partition(":")
    return host if mark and text.count(":") == 1 else text


def _address(text: str) -> Address | None:
    if len(text) > _MOST_CHARS:
        return None
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _network(at: int, text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"listen.trusted_proxies.{at}: {shown(text)} is no address and no network; "
            "10.0.0.0/8 or 192.0.2.1 is expected"
        ) from error
