"""Which paths speak another vendor's dialect: there, errors are in its form too, whoever makes
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from headrace.errors import ContextLengthError
from headrace.http.headers import REQUEST_ID
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.server.api_error import ApiError
from headrace.server.replies.reply import error_reply

_DIALECTS: tuple[tuple[str, str], ...] = (
    ("/v1/messages", "anthropic"),
    ("/api", "ollama"),
)
"""The beginning of paths, and the dialect's folder in `headrace.protocol.dialects`."""

# OpenRouter's, which is below Ollama's.
_NOT_OURS = "/api/v1"


def dialect_of(path: str) -> ClientSide | None:
    """The dialect that clients of a path speak; None for OpenAI's chat, and paths of no dialect."""
    if _is_below(path, _NOT_OURS):
        return None
    folder = next((name for begin, name in _DIALECTS if _is_below(path, begin)), None)
    return None if folder is None else _client(folder)


def error_at(
    path: str, error: ApiError, request_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error reply as clients of the path read it, with its own headers, the id and `headers`."""
    more = {REQUEST_ID: request_id, **own_headers(path, request_id), **(headers or {})}
    side = dialect_of(path)
    if side is None:
        return error_reply(error, more)
    body = side.write_failure(failure_of(error), error.status, request_id)
    return Response(body, error.status, {**error.headers, **more}, media_type="application/json")


def own_headers(path: str, request_id: str) -> dict[str, str]:
    """Headers that clients of a path look for beside those of every reply."""
    side = dialect_of(path)
    return {} if side is None or side.name != "anthropic" else {"request-id": request_id}


def _is_below(path: str, begin: str) -> bool:
    return path == begin or path.startswith(begin + "/")


def _client(folder: str) -> ClientSide:
    # Imported when a client of the dialect comes: most servers have clients of one alone.
    import importlib

    module: Any = importlib.import_module(f"headrace.protocol.dialects.{folder}")
    side: ClientSide = module.CLIENT
    return side


_KINDS: dict[int, FailureKind] = {
    401: "authentication",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
}


def failure_of(error: ApiError) -> Failure:
    """An error as dialects know it."""
    detail = error.detail
    kind = _KINDS.get(error.status) or ("server" if error.status >= 500 else "bad_request")
    if detail.code == ContextLengthError.CODE:
        kind = "context_length"
    return Failure(
        kind=kind,
        message=detail.message,
        status=error.status,
        code=detail.code,
        param=detail.param,
    )
