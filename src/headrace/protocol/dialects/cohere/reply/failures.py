"""Cohere's errors: {"message", "id"}, and a status with two numbers of its own, 498 and 499."""

from __future__ import annotations

from headrace.protocol.dialects.json_values import mapping, object_or_empty, text
from headrace.protocol.dialects.status_failure import (
    lower_names,
    retry_after_s,
    says,
    short,
    status_kind,
)
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

# 498: a word on a list of Cohere's was in the request or the answer. 499: the request was
# cancelled. 501: what is asked for is not there, and will not be on a second try.
_KINDS: dict[int, FailureKind] = {498: "content_policy", 499: "network", 501: "bad_request"}
_TOO_LONG = (
    "too many tokens",
    "size limit exceeded",
    "context length",
    "context window",
    "maximum context",
)
_POLICY = ("blocked input", "blocked output", "content policy", "safety filter")
_NO_MODEL = ("model not found", "not found, make sure the correct model id")
_PAYMENT = ("/ month", "per month", "billing", "payment")


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply whose status is not 200, whatever its body is."""
    found = lower_names(headers)
    fields = object_or_empty(body)
    message = text(fields.get("message")) or text(mapping(fields.get("error")).get("message"))
    return Failure(
        kind=failure_kind(status, message),
        message=short(message) or f"Cohere answered with status {status}",
        status=status,
        retry_after_s=retry_after_s(found),
        request_id=found.get("x-debug-trace-id") or text(fields.get("id")) or None,
    )


def failure_kind(status: int, message: str) -> FailureKind:
    """The kind of a failure, by its status and Cohere's words. Trial keys end within a month."""
    kind = _KINDS.get(status) or status_kind(status)
    words = message.lower()
    if kind == "rate_limit":
        return "payment" if says(words, _PAYMENT) else kind
    if kind != "bad_request":
        return kind
    if says(words, _TOO_LONG):
        return "context_length"
    if says(words, _NO_MODEL):
        return "not_found"
    return "content_policy" if says(words, _POLICY) else kind
