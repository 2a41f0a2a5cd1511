"""A provider's error for a client of the same dialect: its own status and body.

Packages have classes and retries of their own for 409, 415 or 422, and programs read fields that no
neutral failure has. Told so is what is the client's own fault alone; all else is ours to explain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure, FailureKind, ProviderError

# Prompts that are too long have a code of their own in each dialect, which few providers write.
_KINDS: frozenset[FailureKind] = frozenset(("bad_request", "too_large", "content_policy"))
# Somebody else may have the response; where nobody has, it is the client's own to mend.
_CODES = frozenset(("previous_response_not_found",))
# Of keys, money and waiting: those are the gateway's own towards its clients.
_NOT_TOLD = frozenset((401, 402, 407, 408, 429))
_MOST_BYTES = 1 << 16


def with_body(failure: Failure, dialect: str, body: bytes) -> Failure:
    """The same with its body, if it is one that a client of the dialect can read. The body is
    written anew, so that whoever looks for secrets in it has one spelling of each to look for."""
    status = failure.status or 0
    is_clients = failure.kind in _KINDS or failure.code in _CODES
    if not is_clients or not 400 <= status < 500 or status in _NOT_TOLD:
        return failure
    is_error = _SHAPES.get(dialect)
    if is_error is None or len(body) > _MOST_BYTES:
        return failure
    try:
        value = msgspec.json.decode(body)
        if not isinstance(value, dict) or not is_error(value):
            return failure
        written = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        return failure
    return msgspec.structs.replace(failure, as_told=ProviderError(dialect=dialect, body=written))


def status_for(error: AllTargetsFailedError, dialect: str) -> tuple[int, Failure]:
    """What a client of a dialect is told: `as_told` and its status only where that is its own."""
    failure = error.failure
    if failure.as_told is None:
        return error.status, failure
    if failure.as_told.dialect == dialect and failure.status is not None:
        return failure.status, failure
    return error.status, msgspec.structs.replace(failure, as_told=None)


def error_body(side: ClientSide, failure: Failure, status: int, request_id: str) -> bytes:
    """The body of a reply with `status`. A request's id in it is ours, as in the headers."""
    if failure.as_told is None:
        return side.write_failure(failure, status, request_id)
    body = msgspec.json.decode(failure.as_told.body)
    return msgspec.json.encode(body | ({"request_id": request_id} if "request_id" in body else {}))


def _openais(body: dict[str, Any]) -> bool:
    error = body.get("error")
    return isinstance(error, dict) and all(
        isinstance(error.get(name), str) and error[name] for name in ("message", "type")
    )


def _anthropics(body: dict[str, Any]) -> bool:
    return body.get("type") == "error" and _openais(body)


def _ollamas(body: dict[str, Any]) -> bool:
    return isinstance(body.get("error"), str) and body["error"] != ""


_SHAPES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "openai-chat": _openais,
    "openai-responses": _openais,
    "anthropic": _anthropics,
    "ollama": _ollamas,
}
