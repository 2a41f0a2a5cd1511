"""A provider's error passed on to a client of the same dialect, with its own status and body.

Packages have their own classes and retries for 409, 415 or 422, and programs read fields that no
neutral failure has. Only the client's own faults are passed on; all else is the gateway's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure, FailureKind, ProviderError

# Prompts that are too long have their own code in each dialect, which few providers send.
_KINDS: frozenset[FailureKind] = frozenset(("bad_request", "too_large", "content_policy"))
# Another provider may have the response; if none has, it is the client's fault.
_CODES = frozenset(("previous_response_not_found",))
# Keys, payment and waiting are between the gateway and its own clients.
_NOT_TOLD = frozenset((401, 402, 407, 408, 429))
_MOST_BYTES = 1 << 16


def with_body(failure: Failure, dialect: str, body: bytes) -> Failure:
    """The failure with its body, if a client of the dialect can read that. It is encoded again, so
    that each secret has only one spelling to search for."""
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
    """Status and failure for a client: `as_told` and its status only if the dialect matches."""
    failure = error.failure
    if failure.as_told is None:
        return error.status, failure
    if failure.as_told.dialect == dialect and failure.status is not None:
        return failure.status, failure
    return error.status, msgspec.structs.replace(failure, as_told=None)


def as_client_reads(failure: Failure) -> Failure:
    """The failure with the message that is meant for clients."""
    if failure.for_client is None:
        return failure
    return msgspec.structs.replace(failure, message=failure.for_client)


def error_body(side: ClientSide, failure: Failure, status: int, request_id: str) -> bytes:
    """The body of a reply with `status`. A request id in it is the gateway's, as in the headers."""
    if failure.as_told is None:
        return side.write_failure(as_client_reads(failure), status, request_id)
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
