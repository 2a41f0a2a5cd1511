"""The admin API and page, on a port of their own."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.settings.provider import SecretText, Text
from headrace.http.host_names import is_loopback


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The admin API and page on a port of their own; off if omitted. Read only at start."""

    host: Annotated[Text, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    ] = 4001
    key: Annotated[
        SecretText | None,
        Meta(description="The admin key: env:NAME, file:PATH, or the key itself."),
    ] = None
    require_key: Annotated[
        bool,
        Meta(
            description="Whether the key is required; it may be false only when listening on this "
            "machine "
            "alone."
        ),
    ] = True
    hosts: Annotated[
        tuple[Text, ...],
        Meta(
            description="Further host names under which it is reached, for example behind a proxy, "
            "beside localhost, its own host and plain addresses. Requests to other names "
            "are refused."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.require_key and self.key is None:
            raise ConfigError(
                "key: the admin port needs one: write `key: env:ADMIN_KEY` and set that "
                "variable, or write `require_key: false` with a host that only this machine can "
                "reach (127.0.0.1)"
            )
        if not self.require_key and not is_loopback(self.host):
            raise ConfigError(
                "require_key: false is only for hosts that other machines cannot reach, and "
                f"{self.host!r} is reachable from others: give a key, or `host: 127.0.0.1`"
            )

    def __repr__(self) -> str:
        return f"<settings of the admin port {self.host}:{self.port}>"
