"""Errors in both directions: {"type": "error", "error": {"type", "message"}, "request_id"}.

Codes are Anthropic's page "Errors" (2026). Its type for a prompt that is too long, for content it
will not write and for an account without credit is invalid_request_error like any other, so these
are known by their message. Newer errors have a code of their own in error.details.error_code.
"""

from __future__ import annotations

from headrace.protocol.dialects.anthropic.values import decoded, encoded, header, mapping, text
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_KINDS: dict[str, FailureKind] = {
    "invalid_request_error": "bad_request",
    "authentication_error": "authentication",
    "billing_error": "payment",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limit",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
    "api_error": "server",
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
_MESSAGES: tuple[tuple[str, FailureKind], ...] = (
    ("prompt is too long", "context_length"),
    ("exceed context limit", "context_length"),
    ("exceeds the context window", "context_length"),
    ("content filtering policy", "content_policy"),
    ("credit balance is too low", "payment"),
    ("reached your specified api usage limits", "payment"),
)
# Of the request, though their type or status is of a key: (kind as it is written, words, kind).
_OF_REQUEST: tuple[tuple[FailureKind, str, FailureKind], ...] = (
    ("rate_limit", "extra usage is required for long context", "account_limit"),
    ("authentication", "mcp server", "bad_request"),  # the client's own server refused its token
)
_CODES: dict[str, FailureKind] = {
    "contract_spend_limit_reached": "payment",
    "enforced_spend_limit_reached": "payment",
    "linked_organization_spend_limit_reached": "payment",
    "linked_organization_billing_unavailable": "payment",
    "request_body_too_large_after_decoding": "too_large",
}
_TYPES: dict[FailureKind, str] = {
    "bad_request": "invalid_request_error",
    "context_length": "invalid_request_error",
    "content_policy": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "payment": "billing_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "account_limit": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
    "server": "api_error",
    "network": "api_error",
    "damaged": "api_error",
    "reply_too_large": "api_error",
}
_TOO_LONG = "prompt is too long"
_MOST_SHOWN = 300


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """A reply other than a success, whatever its body holds."""
    try:
        value: object = decoded(body)
    except ValueError:
        value = None
    told = mapping(value)
    failure = error_failure(told, status)
    message = failure.message
    if not message:
        shown = body[:_MOST_SHOWN].decode(errors="replace").strip()
        message = shown if shown and not told else f"HTTP status {status} without a message"
    return Failure(
        kind=failure.kind,
        message=message,
        status=status,
        code=failure.code,
        retry_after_s=_retry_after_s(headers),
        request_id=failure.request_id or header(headers, "request-id") or None,
    )


def error_failure(told: dict[str, object], status: int | None = None) -> Failure:
    """An error object: of a reply with `status`, or of an event within a stream."""
    error = mapping(told.get("error"))
    type, message = text(error.get("type")), text(error.get("message"))
    code = text(mapping(error.get("details")).get("error_code"))
    kind = _CODES.get(code) or _KINDS.get(type) or _status_kind(status)
    lower = message[:2000].lower()
    if kind == "bad_request":
        kind = next((found for part, found in _MESSAGES if part in lower), kind)
    else:
        kind = next((to for of, part, to in _OF_REQUEST if of == kind and part in lower), kind)
    return Failure(
        kind=kind,
        message=message,
        status=status,
        code=code or type or None,
        request_id=text(told.get("request_id")) or None,
    )


def write_failure(failure: Failure, request_id: str) -> bytes:
    """The body of an error.

    Coding agents shorten the conversation when they read "prompt is too long", so it is said of
    every provider's refusal of a long prompt.
    """
    return encoded(error_object(failure) | {"request_id": request_id})


def error_object(failure: Failure) -> dict[str, object]:
    """An error without its request's id, as events of a stream have it."""
    message = failure.message
    if failure.kind == "context_length" and _TOO_LONG not in message.lower():
        message = f"{_TOO_LONG}: {message}"
    return {"type": "error", "error": {"type": _TYPES[failure.kind], "message": message}}


def _status_kind(status: int | None) -> FailureKind:
    if status is None:
        return "server"
    known = _STATUSES.get(status)
    if known is not None:
        return known
    return "bad_request" if 400 <= status < 500 else "server"


def _retry_after_s(headers: Headers) -> float | None:
    """retry-after-ms, or retry-after in seconds; a date would need a clock."""
    for name, scale in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(header(headers, name)) / scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
