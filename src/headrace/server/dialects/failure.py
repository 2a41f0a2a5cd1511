"""Errors in the words of a dialect: whole replies, and the end of a stream that failed."""

from __future__ import annotations

from headrace.errors import ContextLengthError
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.server.api_error import ApiError

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
