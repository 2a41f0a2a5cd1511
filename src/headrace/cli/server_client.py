"""Requests to a running server whose replies are a stranger's: bounded, and of checked types.

Whatever a server sends, the worst is an error of ours: a reply is read up to a size and a time, and
a value of another type than the API's counts as absent.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import httpx2
import msgspec

from headrace.cli.server_url import API_KEY_VARIABLE
from headrace.errors import ConfigError, HeadraceError

MAX_REPLY_BYTES = 16 * 2**20
"""Of a list of models or an error: thousands of models."""

MAX_COUNT = 2**63 - 1


class Reply(NamedTuple):
    """A whole reply."""

    status: int
    content: bytes

    @property
    def object(self) -> dict[str, Any]:
        """The JSON object it is; an empty one for any other content."""
        return object_of(self.content) or {}


def open_client(key: str | None, timeout: httpx2.Timeout | float) -> httpx2.Client:
    """A client that sends this key. Raises ConfigError for one that no header can carry."""
    if key is not None and not all("!" <= letter <= "~" for letter in key):
        raise ConfigError(
            f"{API_KEY_VARIABLE}: the key has characters that are not visible ASCII, which a "
            "header cannot carry; correct the variable"
        )
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx2.Client(headers=headers, timeout=timeout)


def get(client: httpx2.Client, url: str, *, timeout_s: float) -> Reply:
    """The reply to a GET. timeout_s: of the whole, however it comes in pieces.

    Raises httpx2.HTTPError where there is none, HeadraceError where it is too large.
    """
    end_s = time.monotonic() + timeout_s
    with client.stream("GET", url) as reply:
        content = bytearray()
        for piece in reply.iter_bytes():
            content += piece
            if len(content) > MAX_REPLY_BYTES:
                raise HeadraceError(f"{url}: the reply has more than {MAX_REPLY_BYTES} bytes")
            if time.monotonic() > end_s:
                raise httpx2.ReadTimeout(f"no whole reply within {timeout_s:g} s")
        return Reply(reply.status_code, bytes(content))


def object_of(content: bytes | str) -> dict[str, Any] | None:
    """The JSON object in a text; None where it is anything else."""
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none of any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: object) -> int | None:
    """A number of things; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_COUNT else None


def number(value: object) -> float | None:
    """A finite number; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    finite = abs(value) <= MAX_COUNT and math.isfinite(value)
    return float(value) if finite else None
