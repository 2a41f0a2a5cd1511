"""A logged request sent again: unchanged except for the model, and without streaming."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import httpx2
import msgspec

from headrace.errors import HeadraceError, RequestError
from headrace.gateway.request_log.record import LogRecord
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dollars import NUSD_PER_USD

# A slow model's answer takes minutes without streaming.
_TIMEOUT_S = 600.0


class ReplayError(HeadraceError):
    """The request cannot be sent as it was, or the gateway is not reachable."""


class RefusedKeyError(HeadraceError):
    """The gateway refuses the key, and so every further request."""


class Sent(NamedTuple):
    """The reply to a replayed request."""

    status: int
    body: bytes
    target: str
    """The target that answered; "" if the gateway names none."""
    cost_nusd: int | None
    """The whole cost; None if unknown."""
    total_ms: float | None
    """The duration by the gateway's log, as for the original; None if it is not logged."""


# Sends path, body and session to a running gateway.
Post = Callable[[str, bytes, str], Sent]
# Replays are logged too; their session marks them, so that they are not replayed in turn.
SESSION = "replay:"
_TARGET = "x-headrace-target"


def replay_body(record: LogRecord, model: str, *, even_if_redacted: bool = False) -> bytes:
    """The body to send. Raises ReplayError if it was not kept, was cut off, or was redacted (unless
    `even_if_redacted`)."""
    request = record.request
    if request is None:
        why = record.without_bodies or "settings"
        raise ReplayError(f"{record.id}: its body was not kept ({why})")
    if request.cut:
        raise ReplayError(
            f"{record.id}: its body was cut after {len(request.text.encode()):,} of "
            f"{request.bytes:,} bytes; raise request_log.max_body_bytes for later requests"
        )
    if request.redacted and not even_if_redacted:
        raise ReplayError(
            f"{record.id}: {request.redacted} values of its body were redacted before it was kept, "
            "so the replay would differ from the original; use --even-if-redacted to send it "
            "anyway"
        )
    try:
        body = JsonObject.read(request.text.encode())
    except RequestError as error:
        raise ReplayError(f"{record.id}: its body is not readable: {error}") from error
    changes: dict[str, bytes | None] = {"model": msgspec.json.encode(model)}
    if not (record.wants_vectors or record.wants_count):
        changes["stream"] = b"false"
    if "stream_options" in body:
        changes["stream_options"] = None
    return body.edited(changes)


def poster(url: str, key: str | None, logged_ms: Callable[[str], float | None]) -> Post:
    """A function that posts requests to the gateway at `url`, bypassing its cache.

    `logged_ms` returns the duration of a request by its id. The function raises ReplayError if the
    gateway is not reachable, and RefusedKeyError.
    """
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    base = url.rstrip("/").removesuffix("/v1")

    def post(path: str, body: bytes, session: str) -> Sent:
        try:
            reply = httpx2.post(
                base + path,
                content=body,
                headers={**headers, "x-session-id": session},
                timeout=_TIMEOUT_S,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ReplayError(f"{base}: the gateway is not reachable: {error}") from error
        if reply.status_code == 401 and _TARGET not in reply.headers:
            needs = "a key" if key is None else "a key other than the one given"
            raise RefusedKeyError(f"the gateway needs {needs}: --key env:NAME")
        return Sent(
            reply.status_code,
            reply.content,
            reply.headers.get(_TARGET, ""),
            _nusd(reply.headers.get("x-headrace-cost-usd", "")),
            logged_ms(reply.headers.get("x-request-id", "")),
        )

    return post


def _nusd(usd: str) -> int | None:
    try:
        return round(float(usd) * NUSD_PER_USD)
    except ValueError:  # "unknown"
        return None
