"""Replicate's errors: {"title": ..., "detail": ..., "status": 422}, as RFC 7807 has them."""

from __future__ import annotations

from headrace.protocol.dialects.json_values import object_or_empty, text
from headrace.protocol.dialects.replicate.prediction import error_kind
from headrace.protocol.dialects.status_failure import (
    lower_names,
    retry_after_s,
    short,
    status_kind,
)
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """The failure in a reply whose status is neither 200 nor 201, whatever its body is."""
    found = lower_names(headers)
    if status == 429:
        # Replicate says when its limit is lifted, in seconds from now.
        found.setdefault("retry-after", found.get("ratelimit-reset", ""))
    fields = object_or_empty(body)
    title, detail = text(fields.get("title")), text(fields.get("detail"))
    message = short(": ".join(sentence for sentence in (title, detail.strip()) if sentence))
    kind = status_kind(status)
    said = error_kind(message)
    if kind == "bad_request" and said in ("content_policy", "context_length"):
        kind = said
    return Failure(
        kind=kind,
        message=message or f"Replicate answered with status {status}",
        status=status,
        param=_param(fields),
        retry_after_s=retry_after_s(found),
        request_id=found.get("x-request-id"),
    )


def _param(fields: dict[str, object]) -> str | None:
    """The first of the fields that were refused."""
    refused = fields.get("invalid_fields")
    first = refused[0] if isinstance(refused, list) and refused else None
    name = first.get("field") if isinstance(first, dict) else None
    return name if isinstance(name, str) else None
