"""Google's errors as failures: google.rpc.Status in JSON, alone or as the one entry of a list.

    {"error": {"code": 429, "message": "...", "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": ".../google.rpc.QuotaFailure",
         "violations": [{"quotaId": "...-FreeTier", "quotaValue": "50"}]},
        {"@type": ".../google.rpc.RetryInfo", "retryDelay": "12s"}]}}

A quota is "payment" where waiting does not help and money does: a daily one of the free tier, one
of zero (the model is not in the free tier), prepaid credit that is spent, a spending cap.
"""

from __future__ import annotations

import math
from typing import Any

from headrace.protocol.dialects.gemini.values import json_value
from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.dialect import DamagedReplyError, Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_MOST_CHARACTERS = 500
_MOST_WAIT_S = 30 * 86400.0
_REQUEST_ID_HEADERS = ("x-goog-request-id", "x-request-id", "x-cloud-trace-context")

_BY_STATUS: dict[str, FailureKind] = {
    "INVALID_ARGUMENT": "bad_request",
    "FAILED_PRECONDITION": "bad_request",
    "OUT_OF_RANGE": "bad_request",
    "ALREADY_EXISTS": "bad_request",
    "UNIMPLEMENTED": "bad_request",
    "UNAUTHENTICATED": "authentication",
    "PERMISSION_DENIED": "permission",
    "NOT_FOUND": "not_found",
    "RESOURCE_EXHAUSTED": "rate_limit",
    "UNAVAILABLE": "overloaded",
    "DEADLINE_EXCEEDED": "timeout",
    "CANCELLED": "server",
    "ABORTED": "server",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "DATA_LOSS": "server",
}
_BY_CODE: dict[int, FailureKind] = {
    401: "authentication",
    402: "payment",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
}
_BY_REASON: dict[str, FailureKind] = {
    "API_KEY_INVALID": "authentication",
    "API_KEY_EXPIRED": "authentication",
    "ACCESS_TOKEN_EXPIRED": "authentication",
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": "authentication",
    "CREDENTIALS_MISSING": "authentication",
    "ACCOUNT_STATE_INVALID": "authentication",
    "API_KEY_SERVICE_BLOCKED": "permission",
    "API_KEY_HTTP_REFERRER_BLOCKED": "permission",
    "API_KEY_IP_ADDRESS_BLOCKED": "permission",
    "SERVICE_DISABLED": "permission",
    "CONSUMER_SUSPENDED": "permission",
    "CONSUMER_INVALID": "permission",
    "BILLING_DISABLED": "payment",
}
# Words of messages, all of a row in lower case, where status and reason say too little.
_BY_WORDS: tuple[tuple[tuple[str, ...], FailureKind], ...] = (
    (("api key not valid",), "authentication"),
    (("api key not found",), "authentication"),
    (("api key expired",), "authentication"),
    (("key was reported as leaked",), "authentication"),
    (("unregistered callers",), "authentication"),
    (("exceeds the maximum number of tokens",), "context_length"),
    (("input token count", "only supports up to"), "context_length"),
    (("payload size exceeds the limit",), "too_large"),
    (("user location is not supported",), "permission"),
    (("enable billing",), "payment"),
    (("requires billing",), "payment"),
    (("responsible ai practices",), "content_policy"),
)
_SPENT = ("prepay", "credits are depleted", "spending cap", "spend cap")


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """Any body at all: what does not parse gives a Failure by the status alone."""
    try:
        value = json_value(body)
    except DamagedReplyError:
        value = None
    if isinstance(value, list) and value:
        value = value[0]
    held = mapping(value).get("error")
    error = {"message": held} if isinstance(held, str) else mapping(held)
    if not text(error.get("message")):
        said = body[:_MOST_CHARACTERS].decode("utf-8", errors="replace").strip()
        error = {**error, "message": said or f"the provider answered with status {status}"}
    return failure_of(error, status, headers)


def failure_of(
    error: dict[str, Any], status: int | None, headers: Headers | None = None
) -> Failure:
    """status: of the reply; None in the middle of a stream, where the error names its own."""
    code = error.get("code")
    if status is None and isinstance(code, int) and 400 <= code < 600:
        status = code
    details = objects(error.get("details"))
    reason = next((text(detail["reason"]) for detail in details if text(detail.get("reason"))), "")
    message = text(error.get("message")) or "the provider returned an error without a message"
    known = {name.lower(): value for name, value in (headers or {}).items()}
    return Failure(
        kind=_kind(error, reason, message.lower(), details, status),
        message=message,
        status=status,
        code=reason or text(error.get("status")) or None,
        param=_field_at_fault(details),
        retry_after_s=_retry_after_s(details, known),
        request_id=next((known[header] for header in _REQUEST_ID_HEADERS if header in known), None),
    )


def _kind(
    error: dict[str, Any],
    reason: str,
    words: str,
    details: list[dict[str, Any]],
    status: int | None,
) -> FailureKind:
    kind = _BY_STATUS.get(text(error.get("status"))) or _by_code(status)
    if kind == "rate_limit":
        return "payment" if _needs_money(words, details) else kind
    if reason in _BY_REASON:
        return _BY_REASON[reason]
    if kind in ("bad_request", "permission", "authentication", "too_large"):
        for some, meant in _BY_WORDS:
            if all(phrase in words for phrase in some):
                return meant
    return kind


def _by_code(status: int | None) -> FailureKind:
    if status in _BY_CODE:
        return _BY_CODE[status]
    return "bad_request" if status is not None and 400 <= status < 500 else "server"


def _needs_money(words: str, details: list[dict[str, Any]]) -> bool:
    if any(phrase in words for phrase in _SPENT):
        return True
    for violation in (
        violation for held in details for violation in objects(held.get("violations"))
    ):
        quota = text(violation.get("quotaId"))
        if violation.get("quotaValue") in ("0", 0) or ("PerDay" in quota and "FreeTier" in quota):
            return True
    return False


def _field_at_fault(details: list[dict[str, Any]]) -> str | None:
    for held in details:
        for violation in objects(held.get("fieldViolations")):
            if text(violation.get("field")):
                return text(violation["field"])
    return None


def _retry_after_s(details: list[dict[str, Any]], headers: dict[str, str]) -> float | None:
    for held in details:
        delay = text(held.get("retryDelay"))
        if delay.endswith("s"):
            waited = _seconds(delay[:-1])
            if waited is not None:
                return waited
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    return _seconds(headers.get("retry-after", ""))


def _seconds(written: str) -> float | None:
    """A number that may be waited for; None for dates and nonsense."""
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MOST_WAIT_S else None
