"""HTTP/1.1 as the mock endpoint writes it: heads, pieces of a chunked body, errors."""

from __future__ import annotations

import http

import msgspec

from headrace.protocol.openai.error import (
    INVALID_REQUEST,
    RATE_LIMIT,
    SERVER_ERROR,
    ErrorBody,
    ErrorDetail,
)

LAST_PIECE = b"0\r\n\r\n"
RECEIVED_HEADER = "x-mock-received-ns"
HTML = b"<!doctype html><title>Welcome</title><p>This is not the API.</p>\n"


def _line(status: int) -> str:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:  # a number that no standard names
        phrase = "Status"
    return f"HTTP/1.1 {status} {phrase}"


def whole(
    status: int,
    body: bytes,
    *,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
    keep_alive: bool = True,
) -> bytes:
    """A reply with all of its body."""
    lines = [
        _line(status),
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def stream_head(received_ns: int, *, chunked: bool, keep_alive: bool) -> bytes:
    """The head of a stream; `received_ns`: when the request was complete."""
    lines = [
        _line(200),
        "content-type: text/event-stream; charset=utf-8",
        "cache-control: no-cache",
        f"{RECEIVED_HEADER}: {received_ns}",
    ]
    if chunked:
        lines.append("transfer-encoding: chunked")
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def piece(data: bytes) -> bytes:
    """`data` as a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def error_body(status: int, message: str, *, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    kind = RATE_LIMIT if status == 429 else SERVER_ERROR if status >= 500 else INVALID_REQUEST
    return msgspec.json.encode(ErrorBody(ErrorDetail(message=message, type=kind, param=param)))
