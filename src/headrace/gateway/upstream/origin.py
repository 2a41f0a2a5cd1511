"""Where a provider is: scheme, host, port, and the path its API begins with."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from headrace.errors import ConfigError, shown

_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """What a connection is made to; connections of one origin can be used for each other."""

    scheme: str
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """As `Host` says it: without the port that the scheme has anyway."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}"


class BaseUrl(NamedTuple):
    """path: without a slash at its end; "" if the API begins at the root."""

    origin: Origin
    path: str

    def joined(self, path: str) -> str:
        """Path of a request. Where the base ends with what `path` begins with (people write
        addresses with and without /v1) it is there once."""
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        base = self.path
        if first and base.endswith("/" + first):
            base = base[: -len(first) - 1]
        return base + path


def read_base_url(text: str) -> BaseUrl:
    """Raises ConfigError for what is no http(s) address, or holds a key, a query or a fragment."""
    problem = None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"base_url {shown(text)}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        problem = "an address like https://api.example.com/v1 is expected"
        if "://" not in text and text:
            problem += f"; write http://{_without_login(text)}"
    elif parts.username is not None or parts.password is not None:
        problem = "a name or password in it would be shown in logs; use api_key"
    elif parts.query or parts.fragment:
        problem = "it cannot have a query or a fragment"
    elif not text.isascii() or any(one <= " " or one == "\x7f" for one in text):
        problem = "only visible ASCII characters can be sent; write others as %XX or punycode"
    if problem or parts.hostname is None:
        raise ConfigError(f"base_url {shown(_without_login(text))}: {problem}")
    origin = Origin(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])
    return BaseUrl(origin, parts.path.rstrip("/"))


def _without_login(text: str) -> str:
    """The address without what stands before its @."""
    scheme, mark, rest = text.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else text.rpartition("@")[2]
