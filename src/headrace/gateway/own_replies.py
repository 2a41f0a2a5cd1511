"""Replies that are told whole: of paths that answer so, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.gateway.asgi_sink import AsgiSink
from headrace.gateway.serving.reply_headers import REQUEST_ID, retry_after
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure


async def tell(
    body: bytes, request_id: str, sink: AsgiSink, more: Sequence[tuple[str, str]] = ()
) -> None:
    """A 200 of JSON. more: headers."""
    await sink.start(200, [*json_headers(body, request_id), *more])
    await sink.last(body)


async def refuse(
    side: ClientSide, status: int, failure: Failure, request_id: str, sink: AsgiSink
) -> None:
    """An error in the client's words, with how long to wait where that helps."""
    body = side.write_failure(failure, status, request_id)
    headers = [*json_headers(body, request_id), *retry_after(failure)]
    if status == 413:
        headers.append(("connection", "close"))
    await sink.start(status, headers)
    await sink.last(body)


def json_headers(
    body: bytes, request_id: str, kind: str = "application/json"
) -> list[tuple[str, str]]:
    """Those that every reply has. kind: as the body says what it is."""
    return [("content-type", kind), ("content-length", str(len(body))), (REQUEST_ID, request_id)]


def error_body(message: str, code: str) -> bytes:
    """In OpenAI's words, where a path is of no dialect."""
    return msgspec.json.encode(
        {
            "error": {
                "message": message, "type": "invalid_request_error", "param": None, "code": code,
            }
        }
    )  # fmt: skip
