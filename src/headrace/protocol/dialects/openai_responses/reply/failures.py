"""Errors: {"error": {message, type, param, code}} as a body, and what ends a stream early.

Read are also the shapes of others that speak this API: an error that is a string, `detail` or
`message` at the top, and an error's fields in the event itself.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.protocol.dialects.account_limit import is_of_request_alone
from headrace.protocol.dialects.openai_responses.values import mapping, text
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_MOST_CHARACTERS = 2000
_MOST_RETRY_S = 86400.0

_CODES: dict[str, FailureKind] = {
    "context_length_exceeded": "context_length",
    "context_window_exceeded": "context_length",
    "content_policy_violation": "content_policy",
    "content_filter": "content_policy",
    "responsible_ai_policy_violation": "content_policy",
    "image_content_policy_violation": "content_policy",
    "invalid_prompt": "content_policy",
    "bio_policy": "content_policy",
    "cyber_policy_violation": "content_policy",
    "misalignment_policy_violation": "content_policy",
    "moderation_blocked": "content_policy",
    "account_limit": "account_limit",  # ours, of another gateway
    "insufficient_quota": "payment",
    "billing_hard_limit_reached": "payment",
    "billing_not_active": "payment",
    "account_deactivated": "authentication",
    "invalid_api_key": "authentication",
    "model_not_found": "not_found",
    # Of who was asked: another provider or account may have it.
    "previous_response_not_found": "not_found",
    "deployment_not_found": "not_found",
    "deploymentnotfound": "not_found",
    "rate_limit_exceeded": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "slow_down": "overloaded",
    "server_is_overloaded": "overloaded",
    "engine_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "vector_store_timeout": "timeout",
    "request_timeout": "timeout",
    "timeout": "timeout",
}
_TYPES: dict[str, FailureKind] = {
    "insufficient_quota": "payment",
    "authentication_error": "authentication",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "overloaded_error": "overloaded",
    "server_error": "server",
    "invalid_request_error": "bad_request",
}
_STATUSES: dict[int, FailureKind] = {
    401: "authentication",
    402: "payment",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_CONTEXT_WORDS = ("context window", "maximum context length", "context length", "too many tokens")
_POLICY_WORDS = ("usage policy", "usage policies", "content management policy")

# What OpenAI's own clients know of each kind: its type, and a code where there is none.
_WRITTEN: dict[FailureKind, tuple[str, str | None]] = {
    "bad_request": ("invalid_request_error", None),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "content_policy": ("invalid_request_error", "invalid_prompt"),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "permission": ("invalid_request_error", "permission_denied"),
    "payment": ("insufficient_quota", "insufficient_quota"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "account_limit": ("invalid_request_error", "account_limit"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", "timeout"),
    "server": ("server_error", "server_error"),
    "network": ("server_error", "server_error"),
    "damaged": ("server_error", "server_error"),
    "reply_too_large": ("server_error", "server_error"),
}


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply with an error's status."""
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = body[: 4 * _MOST_CHARACTERS].decode("utf-8", "replace").strip()
    failure = read_error(value, status)
    return msgspec.structs.replace(
        failure,
        message=failure.message or f"the provider answered with status {status}",
        retry_after_s=_retry_after_s(lower),
        request_id=lower.get("x-request-id") or lower.get("apim-request-id"),
    )


def read_error(value: Any, status: int | None) -> Failure:
    """The failure in an error's body or an event; message is "" if there is none."""
    if isinstance(value, list) and value:
        value = value[0]
    holder = mapping(value)
    error = holder.get("error")
    fields = error if isinstance(error, dict) else holder
    message = text(fields.get("message")) or text(error) or text(holder.get("detail"))
    message = message or text(holder.get("message")) or text(value)
    code = _word(fields.get("code"))
    kind = _kind(code, text(fields.get("type")), message, status)
    return Failure(
        kind=kind,
        message=message[:_MOST_CHARACTERS],
        status=status,
        code=code,
        param=text(fields.get("param")) or None,
    )


def _word(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:_MOST_CHARACTERS] if abs(value) < 2**63 else None
    return text(value)[:_MOST_CHARACTERS] or None


def _kind(code: str | None, type_: str, message: str, status: int | None) -> FailureKind:
    if is_of_request_alone(status, message[:_MOST_CHARACTERS], code, type_):
        return "account_limit"
    said = _CODES.get((code or "").lower())
    if said is not None:
        return said
    if status in (None, 400, 413, 422):
        words = message[:_MOST_CHARACTERS].lower()
        if any(phrase in words for phrase in _CONTEXT_WORDS):
            return "context_length"
        if any(phrase in words for phrase in _POLICY_WORDS):
            return "content_policy"
    if status is None and code is not None and code.isdigit():
        status = int(code)  # OpenRouter: a status that came too late
    by_type = _TYPES.get(type_.lower())
    if status is None:
        return by_type or "server"
    if by_type == "payment":
        return by_type
    if status in _STATUSES:
        return _STATUSES[status]
    return "server" if status >= 500 or status < 400 else "bad_request"


def _retry_after_s(headers: dict[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            return min(value * scale, _MOST_RETRY_S)
    return None


def response_error(failure: Failure) -> dict[str, Any]:
    """`error` of a response that failed."""
    return {"code": _code(failure) or "server_error", "message": failure.message}


def error_event(failure: Failure) -> dict[str, Any]:
    """The event `error`, but for its number."""
    return {
        "type": "error",
        "code": _code(failure),
        "message": failure.message,
        "param": failure.param,
    }


def write_failure(failure: Failure) -> bytes:
    """The body of a reply with an error's status."""
    error = {
        "message": failure.message,
        "type": _WRITTEN[failure.kind][0],
        "param": failure.param,
        "code": _code(failure),
    }
    return msgspec.json.encode({"error": error})


def _code(failure: Failure) -> str | None:
    """The provider's own, but where programs match on OpenAI's."""
    usual = _WRITTEN[failure.kind][1]
    if failure.kind in ("context_length", "payment"):
        return usual
    if failure.code is not None and _CODES.get(failure.code) == failure.kind:
        return failure.code
    return usual or failure.code
