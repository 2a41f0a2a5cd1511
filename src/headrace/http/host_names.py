"""The host names that a listener answers to: the end of DNS rebinding.

A page in a browser may make its own name point to 127.0.0.1. Its requests are then of one origin
with this server, so that neither CORS nor a missing key keeps it out; but they still name the page
in `Host`. A name that only this machine can give, and an address, cannot be borrowed in this way.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import shown

_ALL = "*"
_BELOW = "*."

_BRACKETED = re.compile(r"\[([^\]]*)\](?::\d*)?")


@dataclass(frozen=True)
class HostNames:
    """The names that requests may have in `Host`, beside localhost and IP addresses."""

    allowed: frozenset[str]
    """In lower case; `*.name` stands for every name below that one, `*` for all."""
    setting: str
    """What adds a name, for error messages."""

    @classmethod
    def of(cls, allowed: Iterable[str], setting: str) -> HostNames:
        """From the names of a setting, in any case."""
        return cls(frozenset(name.casefold().removesuffix(".") for name in allowed), setting)

    @classmethod
    def of_listener(
        cls, sock: socket.socket, host: str, allowed: Iterable[str], setting: str
    ) -> HostNames | None:
        """Those of a listening socket; None where any name will do.

        That is so for a Unix socket, which no browser reaches, and for an address beyond this
        machine, whose names are not known here, unless the setting gives them. host: the name or
        address it was told to listen on, which is always one of its names.
        """
        allowed = tuple(allowed)
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or _ALL in allowed:
            return None
        if not allowed and not is_loopback(sock.getsockname()[0]):
            return None
        return cls.of((*allowed, *([host] if host else [])), setting)

    def refusal(self, host: str) -> str | None:
        """Why a request with this value of `Host` is refused; None where it is not."""
        if host.partition(":")[0] == "localhost":
            return None
        name = _name_of(host)
        if name is None or name == "localhost" or name in self.allowed or _ALL in self.allowed:
            return None
        labels = name.split(".")
        parents = (".".join(labels[at:]) for at in range(1, len(labels)))
        if any(f"{_BELOW}{parent}" in self.allowed for parent in parents):
            return None
        return (
            f"Host: {shown(host)} is not a name of this server; address it as localhost or by its "
            f"IP address, or add the name to {self.setting}"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. Of a name other than localhost that is not known."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _name_of(host: str) -> str | None:
    """A Host header without its port, in lower case; None for an address."""
    bracketed = _BRACKETED.fullmatch(host)
    name = bracketed[1] if bracketed else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.casefold().removesuffix(".")
    return None
