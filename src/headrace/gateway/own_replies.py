"""Replies of the gateway itself that are sent whole, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.gateway.asgi_sink import AsgiSink
from headrace.gateway.serving.reply_headers import REQUEST_ID, retry_after
from headrace.gateway.serving.told_error import error_body as failed_body
from headrace.http.unknown_path import unknown_path
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure

_OLLAMAS, _OPENROUTERS = "/api/", "/api/v1/"
_OLLAMAS_OLDER = {"/api/embeddings": "/api/embed"}


async def tell(
    body: bytes, request_id: str, sink: AsgiSink, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Send a 200 with a JSON body; `more` are headers."""
    await sink.start(200, [*json_headers(body, request_id), *more])
    await sink.last(body)


async def refuse(
    side: ClientSide, status: int, failure: Failure, request_id: str, sink: AsgiSink
) -> None:
    """Send an error in the client's dialect, with a time to retry where that helps."""
    body = failed_body(side, failure, status, request_id)
    headers = [*json_headers(body, request_id), *retry_after(failure)]
    if status == 413:
        headers.append(("connection", "close"))
    await sink.start(status, headers)
    await sink.last(body)


def json_headers(
    body: bytes, request_id: str, kind: str = "application/json"
) -> list[tuple[str, str]]:
    """The headers of every reply; `kind` is the body's content type."""
    return [("content-type", kind), ("content-length", str(len(body))), (REQUEST_ID, request_id)]


def no_such_path(path: str, known: Iterable[str]) -> bytes:
    """The body of a 404, in the dialect that the path suggests; `known` are paths to propose."""
    is_ollamas = path.startswith(_OLLAMAS) and not path.startswith(_OPENROUTERS)
    if not is_ollamas:
        return error_body(unknown_path(path, frozenset(known), docs=False), "not_found")
    instead = _OLLAMAS_OLDER.get(path)
    if instead is not None:
        message = f"{path} is not served here; use {instead}, which has replaced it"
    else:
        near = frozenset(path_of for path_of in known if path_of.startswith(_OLLAMAS))
        message = unknown_path(path, near, docs=False)
    return msgspec.json.encode({"error": message})


def error_body(message: str, code: str) -> bytes:
    """An error in OpenAI's format, for paths without a dialect."""
    return msgspec.json.encode(
        {
            "error": {
                "message": message, "type": "invalid_request_error", "param": None, "code": code,
            }
        }
    )  # fmt: skip
