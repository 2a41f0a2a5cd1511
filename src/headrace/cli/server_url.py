"""The URL of a running server as people type it, and the key to send there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.errors import ConfigError, shown

API_KEY_VARIABLE = "HEADRACE_API_KEY"


def base_url(url: str, name: str) -> str:
    """The URL below which the API's paths are. Raises ConfigError with the `name` of the flag."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{name} {shown(url)}: not the URL of a server; write http://HOST:PORT, or with a path "
            "the one below which its API is"
        )
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def first_key(environ: Mapping[str, str]) -> str | None:
    """The key to send: the first of those that a server would accept with this environment."""
    return environ.get(API_KEY_VARIABLE, "").partition(",")[0].strip() or None
