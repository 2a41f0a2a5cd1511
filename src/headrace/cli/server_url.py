"""The URL of a running server as people type it, and the key to send there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from headrace.errors import ConfigError, shown

API_KEY_VARIABLE = "HEADRACE_API_KEY"


def base_url(url: str, name: str) -> str:
    """The URL below which the API's paths are. Raises ConfigError with the `name` of the flag."""
    parts = _parts(url)
    if parts is None or parts.query or parts.fragment:
        raise ConfigError(
            f"{name} {shown(url)}: not the URL of a server; write http://HOST:PORT, or with a path "
            "the one below which its API is"
        )
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _parts(url: str) -> SplitResult | None:
    """The parts of a URL of the web; None where it is none, or its host or port cannot be."""
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:  # of idna, too
        return None
    known = parts.scheme in ("http", "https") and host and url.isprintable() and " " not in url
    return parts if known else None


def first_key(environ: Mapping[str, str]) -> str | None:
    """The key to send: the first of those that a server would accept with this environment."""
    return environ.get(API_KEY_VARIABLE, "").partition(",")[0].strip() or None
