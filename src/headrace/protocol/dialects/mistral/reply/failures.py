"""Mistral's errors, of which there are several forms.

{"object": "error", "message", "type", "param", "code"} of the models, {"detail": [...]} of FastAPI,
the one inside the other ({"message": {"detail": ...}}), {"message", "request_id"} of its gateway,
and OpenAI's {"error": {...}} of servers that speak as Mistral does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.protocol.dialects.json_values import object_or_empty, objects, text
from headrace.protocol.dialects.status_failure import (
    lower_names,
    retry_after_s,
    says,
    short,
    status_kind,
)
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_NO_MODEL = frozenset(("invalid_model", "1500"))
_TOO_LONG = ("maximum context length", "too large for model", "context length", "context window")
_POLICY = ("guardrail", "moderation", "content policy")
_PAYMENT = ("monthly", "per month", "billing", "payment", "insufficient credit")
_REQUEST_IDS = ("mistral-correlation-id", "x-kong-request-id")


class _Words(NamedTuple):
    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply whose status is not 200, whatever its body is."""
    found = lower_names(headers)
    fields = object_or_empty(body)
    words = _words(fields)
    ids = (*(found.get(name) for name in _REQUEST_IDS), text(fields.get("request_id")))
    return Failure(
        kind=_kind(status, words),
        message=short(words.message) or f"Mistral answered with status {status}",
        status=status,
        code=short(words.code or words.type) or None,
        param=short(words.param) or None,
        retry_after_s=retry_after_s(found),
        request_id=next((id_ for id_ in ids if id_), None),
    )


def is_error(fields: dict[str, Any]) -> bool:
    """Whether an object, of a stream or with status 200, tells of a failure and nothing else."""
    if fields.get("object") == "error" or fields.get("error"):
        return True
    return "choices" not in fields and ("detail" in fields or "message" in fields)


def reported_failure(fields: dict[str, Any]) -> Failure:
    """The failure in such an object. Without a status a fault of the request is recognised by its
    words alone."""
    words = _words(fields)
    kind = _kind(400, words)
    if kind == "bad_request" and not words.type.startswith("invalid"):
        kind = "server"
    return Failure(
        kind=kind,
        message=short(words.message) or "Mistral gave up on the answer",
        code=short(words.code or words.type) or None,
        param=short(words.param) or None,
    )


def _kind(status: int, words: _Words) -> FailureKind:
    kind = status_kind(status)
    said = f"{words.type} {words.message}".lower()
    if kind == "rate_limit":
        return "payment" if says(said, _PAYMENT) else kind
    if kind in ("bad_request", "permission") and says(said, _POLICY):
        return "content_policy"
    if kind != "bad_request":
        return kind
    if words.type in _NO_MODEL or words.code in _NO_MODEL:
        return "not_found"
    return "context_length" if says(said, _TOO_LONG) else kind


def _words(fields: dict[str, Any]) -> _Words:
    error = fields.get("error")
    if isinstance(error, dict):
        fields = error
    message = fields.get("message")
    inner = message.get("detail") if isinstance(message, dict) else None
    detail = inner if inner is not None else fields.get("detail")
    code = fields.get("code")
    param = text(fields.get("param"))
    told = text(message) or text(detail) or text(error)
    if not told:
        faults = objects(detail) or objects([detail])
        told = "; ".join(fault for fault in map(_fault, faults[:_MOST_FAULTS]) if fault)
        if faults and not param:
            param = _place(faults[0])
    number = str(code) if isinstance(code, int) and not isinstance(code, bool) else text(code)
    return _Words(told, text(fields.get("type")), number, param)


_MOST_FAULTS = 8


def _fault(fault: dict[str, Any]) -> str:
    place, words = _place(fault), text(fault.get("msg")) or text(fault.get("message"))
    return f"{place}: {words}" if place and words else words


def _place(fault: dict[str, Any]) -> str:
    """The path of the field at fault; "body" before it says nothing."""
    loc = fault.get("loc")
    steps = (
        [str(step) for step in loc if isinstance(step, str | int)] if isinstance(loc, list) else []
    )
    return ".".join(steps[1:] if steps[:1] == ["body"] else steps)
