"""Which paths speak another vendor's dialect: there, errors are in its form too, whoever makes
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from headrace.errors import ContextLengthError
from headrace.http.headers import REQUEST_ID
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.server.api_error import ApiError
from headrace.server.replies.reply import error_reply


class DialectPaths(NamedTuple):
    """The paths of a dialect."""

    begin: str
    """What they begin with."""
    folder: str
    """The dialect's, in `headrace.protocol.dialects`."""
    id_header: str | None = None
    """The header that its clients read the id of a request from, beside that of every reply."""


_DIALECTS = (
    DialectPaths("/v1/messages", "anthropic", id_header="request-id"),
    DialectPaths("/api", "ollama"),
)

# OpenRouter's, which is below Ollama's.
_NOT_OURS = "/api/v1"


def dialect_of(path: str) -> ClientSide | None:
    """The dialect that clients of a path speak; None for OpenAI's chat, and paths of no dialect."""
    paths = _paths_of(path)
    return None if paths is None else _client(paths.folder)


def error_at(
    path: str, error: ApiError, request_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """An error reply as clients of the path read it, with its own headers, the id and `headers`."""
    more = {REQUEST_ID: request_id, **(headers or {})}
    if (id_header := id_header_of(path)) is not None:
        more[id_header] = request_id
    side = dialect_of(path)
    if side is None:
        return error_reply(error, more)
    body = side.write_failure(failure_of(error), error.status, request_id)
    return Response(body, error.status, {**error.headers, **more}, media_type="application/json")


def id_header_of(path: str) -> str | None:
    """The header beside that of every reply that clients of a path read the id from, if any."""
    paths = _paths_of(path)
    return None if paths is None else paths.id_header


def _paths_of(path: str) -> DialectPaths | None:
    if _is_below(path, _NOT_OURS):
        return None
    return next((paths for paths in _DIALECTS if _is_below(path, paths.begin)), None)


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
