"""The address of a provider: scheme, host, port, and the path its API begins with."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from headrace.errors import ConfigError, shown

_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """The endpoint of a connection; connections of one origin are interchangeable."""

    scheme: str
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """The `Host` header: without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}"


class BaseUrl(NamedTuple):
    """An origin and a path without a slash at its end; "" if the API begins at the root."""

    origin: Origin
    path: str

    def joined(self, path: str) -> str:
        """The path of a request. If the base ends with the first segment of `path` (people write
        addresses with and without /v1), that segment appears once."""
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        base = self.path
        if first and base.endswith("/" + first):
            base = base[: -len(first) - 1]
        return base + path


def read_base_url(text: str) -> BaseUrl:
    """Parse an http(s) address. Raises ConfigError, also for one with a key, query or fragment."""
    problem = None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"base_url {shown(text)}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        problem = "it is not an address like https://api.example.com/v1"
        if "://" not in text and text:
            problem += f"; write http://{_without_login(text)}"
    elif parts.username is not None or parts.password is not None:
        problem = "a name or password in it would appear in logs; use api_key"
    elif parts.query or parts.fragment:
        problem = "it cannot have a query or a fragment"
    elif not text.isascii() or any(char <= " " or char == "\x7f" for char in text):
        problem = "only visible ASCII characters can be sent; write others as %XX or punycode"
    if problem or parts.hostname is None:
        raise ConfigError(f"base_url {shown(_without_login(text))}: {problem}")
    origin = Origin(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])
    return BaseUrl(origin, parts.path.rstrip("/"))


def _without_login(text: str) -> str:
    """The address without what comes before its @."""
    scheme, mark, rest = text.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else text.rpartition("@")[2]
