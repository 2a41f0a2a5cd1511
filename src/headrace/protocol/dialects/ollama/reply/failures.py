"""Ollama's errors, which are one text: {"error": "model 'x' not found"}.

The kind is in the status, except for a prompt that is too long, which only the words show.
"""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.status_failure import (
    lower_names,
    retry_after_s,
    says,
    short,
    status_kind,
)
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_TOO_LONG = (
    "context length",
    "context size",
    "context window",
    "exceeds maximum context",
    "prompt too long",
    "prompt is too long",
)
_BUSY = ("server busy", "maximum pending requests", "too many requests")


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply whose status is not 200, whatever its body is."""
    found = lower_names(headers)
    message = _body_text(body)
    return Failure(
        kind=_kind(status, message),
        message=message or f"Ollama answered with status {status}",
        status=status,
        retry_after_s=retry_after_s(found),
        request_id=found.get("x-request-id"),
    )


def line_failure(error: object) -> Failure:
    """The failure in a line {"error": ...} in the middle of a stream, whose status was 200."""
    message = error_text(error) or "the stream ended with an error"
    return Failure(kind=_kind(500, message), message=message)


def error_text(error: object) -> str:
    """The text of an error: itself, or as OpenAI's API and proxies before Ollama wrap it."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("error")
    return short(error) if isinstance(error, str) else ""


def _kind(status: int, message: str) -> FailureKind:
    words = message.lower()
    if status in (400, 413, 422, 500) and says(words, _TOO_LONG):
        return "context_length"
    if status >= 500 and says(words, _BUSY):
        return "overloaded"
    return status_kind(status)


def _body_text(body: bytes) -> str:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    return error_text(value.get("error")) or error_text(value)
