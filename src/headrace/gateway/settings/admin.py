"""The admin API and page, on a port of their own."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.settings.provider import SecretText, Text


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What administrators see and change; there is none unless this stands in the file. Taken at
    the start."""

    host: Annotated[Text, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    ] = 4001
    key: Annotated[
        SecretText | None, Meta(description="What opens it: env:NAME, file:PATH, or itself.")
    ] = None
    require_key: Annotated[
        bool,
        Meta(description="Whether it needs the key; without one only on this machine's own host."),
    ] = True
    hosts: Annotated[
        tuple[Text, ...],
        Meta(
            description="Names it is reached by beside localhost, its host and plain addresses, as "
            "behind a proxy; requests to others are refused."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.require_key and self.key is None:
            raise ConfigError(
                "key: the admin port needs one: write `key: env:ADMIN_KEY` and set that variable, "
                "or `require_key: false` with a host of this machine alone (127.0.0.1)"
            )
        if not self.require_key and not is_loopback(self.host):
            raise ConfigError(
                f"require_key: false is for hosts of this machine alone, and {self.host!r} is "
                "reached from others: give a key, or `host: 127.0.0.1`"
            )

    def __repr__(self) -> str:
        return f"<settings of the admin port {self.host}:{self.port}>"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
