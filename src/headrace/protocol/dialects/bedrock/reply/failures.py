"""Bedrock's errors: the kind is in the header x-amzn-errortype or in a frame of a stream.

Some kinds are only in the words: a prompt that is too long and a model that does not exist are both
a ValidationException.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.protocol.dialects.bedrock.values import NOT_JSON
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

# Names without "Exception" at their end, in lower case: frames write them "throttlingException".
_KINDS: dict[str, FailureKind] = {
    "accessdenied": "permission",
    "conflict": "bad_request",
    "expiredtoken": "authentication",
    "incompletesignature": "authentication",
    "internalfailure": "server",
    "internalserver": "server",
    "invalidclienttokenid": "authentication",
    "invalidsignature": "authentication",
    "missingauthenticationtoken": "authentication",
    "modelerror": "server",
    "modelnotready": "overloaded",
    "modelstreamerror": "server",
    "modeltimeout": "timeout",
    "notauthorized": "permission",
    "optinrequired": "permission",
    "requestentitytoolarge": "too_large",
    "requestexpired": "authentication",
    "requesttimeout": "timeout",
    "resourcenotfound": "not_found",
    "serviceunavailable": "overloaded",
    "servicequotaexceeded": "rate_limit",
    "signaturedoesnotmatch": "authentication",
    "throttling": "rate_limit",
    "toomanyrequests": "rate_limit",
    "unknownoperation": "not_found",
    "unrecognizedclient": "authentication",
    "validation": "bad_request",
}
_STATUS_KINDS: dict[int, FailureKind] = {
    401: "authentication",
    402: "payment",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    424: "server",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_TOO_LONG = (
    "input is too long",
    "prompt is too long",
    "too many input tokens",
    "input tokens exceeded",
    "exceed context limit",
    "context length",
    "context window",
    "maximum number of input tokens",
    "expected maxlength",
)
_NO_MODEL = (
    "model identifier is invalid",
    "on-demand throughput isn",
    "end of its life",
    "could not resolve the foundation model",
)
_POLICY = ("content filter", "content policy", "usage policies", "blocked by guardrail")
_PAYMENT = ("invalid_payment_instrument", "payment instrument")
_MESSAGE_CHARACTERS = 2000


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply whose status is not 200, whatever its body is."""
    found = {name.lower(): value for name, value in headers.items()}
    fields = _fields(body)
    # "ThrottlingException:http://internal.amazon.com/coral/..." or "com.amazon#ThrottlingException"
    kind = found.get("x-amzn-errortype") or _string(fields, "__type") or _string(fields, "code")
    code = kind.partition(":")[0].rpartition("#")[2]
    message = _string(fields, "message") or _string(fields, "Message")
    return Failure(
        kind=failure_kind(code, message, status),
        message=_short(message) or f"Bedrock answered with status {status}",
        status=status,
        code=code or None,
        retry_after_s=_retry_after_s(found),
        request_id=found.get("x-amzn-requestid"),
    )


def stream_failure(code: str, payload: bytes) -> Failure:
    """The failure in an exception frame. A model's own status is more precise than the exception's
    name."""
    fields = _fields(payload)
    message = (
        _string(fields, "originalMessage")
        or _string(fields, "message")
        or _string(fields, "Message")
    )
    status = fields.get("originalStatusCode")
    if code.lower().startswith("modelstreamerror") and status in (429, 503, 529):
        kind = _STATUS_KINDS[status]
    else:
        kind = failure_kind(code, message, 500)
    return Failure(
        kind=kind,
        message=_short(message) or f"the stream ended with {_short(code) or 'an error'}",
        code=_short(code) or None,
    )


def failure_kind(code: str, message: str, status: int) -> FailureKind:
    """The kind of a failure, by its code ("" if missing), its words and its status."""
    kind = _KINDS.get(code.lower().removesuffix("exception"))
    if kind is None:
        kind = _STATUS_KINDS.get(status) or ("server" if status >= 500 else "bad_request")
    words = message.lower()
    if kind == "permission" and _says(words, _PAYMENT):
        return "payment"
    if kind != "bad_request":
        return kind
    if _says(words, _TOO_LONG):
        return "context_length"
    if _says(words, _NO_MODEL):
        return "not_found"
    return "content_policy" if _says(words, _POLICY) else kind


def _says(words: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in words for phrase in phrases)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except NOT_JSON:
        return {}
    return value if isinstance(value, dict) else {}


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _short(text: str) -> str:
    return text[:_MESSAGE_CHARACTERS]


def _retry_after_s(headers: dict[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None
