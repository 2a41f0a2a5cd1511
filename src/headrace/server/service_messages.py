"""What is sent and taken on the paths about the server itself: health, version and /admin."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.openai.error import ErrorDetail
from headrace.protocol.request import Endpoint
from headrace.server.open_calls import OpenCallFacts


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of the server. With any status but "ok" and "ready" the reply is a 503 with an
    error."""

    status: str
    """ok, loading, restarting, stalled or dead; of /ready: ready, draining, or one of those."""
    uptime_s: float
    phase: str | None = None
    """While loading, what the engine does."""
    progress: float | None = None
    """The share of the weights it has."""
    restarts: int = 0
    """Restarts of the engine since the server started."""
    failure: str = ""
    """Failure of the previous engine."""
    silent_s: float = 0.0
    """Seconds since the engine was last heard from."""
    retry_after_s: float | None = None
    """When it may serve again."""
    error: ErrorDetail | None = None


class Version(msgspec.Struct, frozen=True):
    """The version of the package."""

    version: str


class OpenRequests(msgspec.Struct, frozen=True):
    """Open calls, the oldest first."""

    requests: list[OpenCallFacts]


class CancelRequest(msgspec.Struct, frozen=True):
    """The call to end, by its x-request-id."""

    request_id: str


CANCEL = Endpoint("/admin/cancel", CancelRequest)


class Cancelled(msgspec.Struct, frozen=True):
    """The number of open calls that had the id and were ended."""

    cancelled: int


class PrefixCacheReset(msgspec.Struct, frozen=True):
    """The number of cached blocks that were forgotten; those of open requests stay."""

    blocks: int


class EngineRestart(msgspec.Struct, frozen=True):
    """Another engine is being started. retry_after_s: a guess of when it serves.

    restarts: how many were started after the first, whatever the cause; not yet counting this one
    where it has not begun.
    """

    status: str
    restarts: int
    retry_after_s: float | None = None


class Settings(msgspec.Struct, frozen=True):
    """Every setting by name, secrets hidden. engine: None until they are known."""

    server: dict[str, Any]
    engine: dict[str, Any] | None
