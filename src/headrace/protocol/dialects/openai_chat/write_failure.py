"""Errors for clients of OpenAI's API: {"error": {message, type, param, code}}, its types and codes.

A provider's own code is passed on where the kind has none of OpenAI's that programs match on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.neutral.failure import Failure, FailureKind

# Kind, OpenAI's type, OpenAI's code if it has one.
_TYPES: dict[FailureKind, tuple[str, str | None]] = {
    "bad_request": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "content_policy_violation"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "permission": ("request_forbidden", None),
    "payment": ("insufficient_quota", "insufficient_quota"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "account_limit": ("invalid_request_error", "account_limit"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("server_error", "overloaded"),
    "timeout": ("server_error", "timeout"),
    "server": ("server_error", None),
    "network": ("server_error", "connection_error"),
    "damaged": ("server_error", "bad_gateway"),
    "reply_too_large": ("server_error", "bad_gateway"),
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
