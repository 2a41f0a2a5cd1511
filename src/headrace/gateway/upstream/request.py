"""A request as bytes. Nothing from outside can add a header or a line to it."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.gateway.upstream.origin import Origin

# RFC 9110, 5.6.2: the characters of a header's name.
_NAME = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def request_bytes(
    method: str,
    origin: Origin,
    target: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
) -> bytes:
    """Head and body. `target` is path and query. Raises ValueError for what would break the head.

    Host, content-length and accept-encoding are added, so that the gateway can read the reply.
    """
    if not target.startswith("/") or not _is_visible(target):
        raise ValueError("the path of a request must begin with / and be visible ASCII")
    lines = [f"{method} {target} HTTP/1.1", f"host: {origin.host_header}"]
    for name, value in headers:
        if not name or not _NAME.issuperset(name) or not _is_value(value):
            raise ValueError(f"header {name[:40]!r} cannot be sent: a character is not allowed")
        lines.append(f"{name}: {value}")
    lines.append("accept-encoding: identity")
    lines.append(f"content-length: {len(body)}\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1") + body


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _is_value(value: str) -> bool:
    if "\r" in value or "\n" in value or "\0" in value:
        return False
    return value.isascii() or all(ord(char) < 256 for char in value)
