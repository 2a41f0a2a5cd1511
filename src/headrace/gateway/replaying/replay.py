"""A logged request sent once more: nothing of it changes but the model, and that it wants no
stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import httpx2
import msgspec

from headrace.errors import HeadraceError, RequestError
from headrace.gateway.request_log.record import LogRecord
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dollars import NUSD_PER_USD

# An answer of a slow model without a stream takes minutes.
_TIMEOUT_S = 600.0


class ReplayError(HeadraceError):
    """The request cannot be sent as it was, or the gateway cannot be reached."""


class RefusedKeyError(HeadraceError):
    """The gateway answers nobody who has no key of its own; so it is with every request."""


class Sent(NamedTuple):
    """What came of a request. body: as it was told. target: "" where the gateway names none.
    cost_nusd: all that was paid for it, None where nobody knows that. total_ms: by the gateway's
    log, as that of the request that is replayed; None where it is not there."""

    status: int
    body: bytes
    target: str
    cost_nusd: int | None
    total_ms: float | None


# path, body, session: what is sent; to a gateway that is running.
Post = Callable[[str, bytes, str], Sent]
# Replays are logged as well; by their session they are known, and not replayed with the rest.
SESSION = "replay:"
_TARGET = "x-headrace-target"


def replay_body(record: LogRecord, model: str, *, even_if_redacted: bool = False) -> bytes:
    """The body to send. Raises ReplayError where it is not kept, is not whole, or is not what was
    sent (unless `even_if_redacted`)."""
    request = record.request
    if request is None:
        why = record.without_bodies or "settings"
        raise ReplayError(f"{record.id}: its body was not kept ({why})")
    if request.cut:
        raise ReplayError(
            f"{record.id}: its body was cut after {len(request.text.encode()):,} of "
            f"{request.bytes:,} bytes; raise request_log.max_body_bytes for those to come"
        )
    if request.redacted and not even_if_redacted:
        raise ReplayError(
            f"{record.id}: {request.redacted} values of its body were replaced before it was kept, "
            "so that another model would be asked something else; --even-if-redacted sends it all "
            "the same"
        )
    try:
        body = JsonObject.read(request.text.encode())
    except RequestError as error:
        raise ReplayError(f"{record.id}: its body cannot be read: {error}") from error
    changes: dict[str, bytes | None] = {"model": msgspec.json.encode(model)}
    if not (record.wants_vectors or record.wants_count):
        changes["stream"] = b"false"
    if "stream_options" in body:
        changes["stream_options"] = None
    return body.edited(changes)


def poster(url: str, key: str | None, logged_ms: Callable[[str], float | None]) -> Post:
    """url: of the gateway, without a path. The gateway's cache is not asked, and is told nothing.
    logged_ms: how long a request of this id took.

    The post raises ReplayError where the gateway cannot be reached, and RefusedKeyError.
    """
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    base = url.rstrip("/").removesuffix("/v1")

    def post(path: str, body: bytes, session: str) -> Sent:
        try:
            told = httpx2.post(
                base + path,
                content=body,
                headers={**headers, "x-session-id": session},
                timeout=_TIMEOUT_S,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ReplayError(f"{base}: the gateway cannot be reached: {error}") from error
        if told.status_code == 401 and _TARGET not in told.headers:
            asks = "for a key" if key is None else "for another key than the one given"
            raise RefusedKeyError(f"the gateway asks {asks}: --key env:NAME")
        return Sent(
            told.status_code,
            told.content,
            told.headers.get(_TARGET, ""),
            _nusd(told.headers.get("x-headrace-cost-usd", "")),
            logged_ms(told.headers.get("x-request-id", "")),
        )

    return post


def _nusd(usd: str) -> int | None:
    try:
        return round(float(usd) * NUSD_PER_USD)
    except ValueError:  # "unknown"
        return None
