"""The error object every OpenAI client reads: {"error": {message, type, param, code}}.

It is the body of every reply that is not a success, and the last event of a stream that failed
after its headers were sent.
"""

from __future__ import annotations

import msgspec

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
RATE_LIMIT = "rate_limit_error"


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """param: path of the field at fault, if any. code: what programs match on, if anything."""

    message: str
    type: str = INVALID_REQUEST
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The JSON object that goes over the wire."""

    error: ErrorDetail
