"""Errors for clients of OpenAI's API: {"error": {message, type, param, code}}, its types and codes.

A provider's own code is passed on where the kind has none of OpenAI's that programs match on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.openai.error import INVALID_REQUEST, RATE_LIMIT, SERVER_ERROR

# Kind, OpenAI's type, OpenAI's code if it has one.
_TYPES: dict[FailureKind, tuple[str, str | None]] = {
    "bad_request": (INVALID_REQUEST, None),
    "context_length": (INVALID_REQUEST, "context_length_exceeded"),
    "content_policy": (INVALID_REQUEST, "content_policy_violation"),
    "authentication": (INVALID_REQUEST, "invalid_api_key"),
    "permission": ("request_forbidden", None),
    "payment": ("insufficient_quota", "insufficient_quota"),
    "not_found": (INVALID_REQUEST, "model_not_found"),
    "too_large": (INVALID_REQUEST, "request_too_large"),
    "account_limit": (INVALID_REQUEST, "account_limit"),
    "rate_limit": (RATE_LIMIT, "rate_limit_exceeded"),
    "overloaded": (SERVER_ERROR, "overloaded"),
    "timeout": (SERVER_ERROR, "timeout"),
    "server": (SERVER_ERROR, None),
    "network": (SERVER_ERROR, "connection_error"),
    "damaged": (SERVER_ERROR, "bad_gateway"),
    "reply_too_large": (SERVER_ERROR, "bad_gateway"),
}


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """The error object. request_id: ours, "" to leave it out."""
    kind, code = _TYPES[failure.kind]
    body: dict[str, Any] = {
        "error": {
            "message": failure.message,
            "type": kind,
            "param": failure.param,
            "code": failure.code if code is None else code,
        }
    }
    if request_id:
        body["request_id"] = request_id
    return body


def write_failure(failure: Failure, request_id: str) -> bytes:
    """The body of a reply that is not a success."""
    return msgspec.json.encode(error_body(failure, request_id))
