"""What is sent and taken on the paths about the server itself: health, version and /admin."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.openai.error import ErrorDetail
from headrace.protocol.request import Endpoint
from headrace.server.open_calls import OpenCallFacts


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """With any status but "ok" and "ready" the reply is a 503 with an error.

    status: ok, loading, restarting, stalled or dead; of /ready: ready, draining, or one of those.
    phase: while loading, what the engine does; progress: the share of the weights it has.
    restarts: of the engine since the server began. failure: of the engine before. silent_s: for
    how long nothing was heard of the engine. retry_after_s: when it may serve again.
    """

    status: str
    uptime_s: float
    phase: str | None = None
    progress: float | None = None
    restarts: int = 0
    failure: str = ""
    silent_s: float = 0.0
    retry_after_s: float | None = None
    error: ErrorDetail | None = None


class Version(msgspec.Struct, frozen=True):
    """The version of the package."""

    version: str


class OpenRequests(msgspec.Struct, frozen=True):
    """Open calls, the oldest first."""

    requests: list[OpenCallFacts]


class CancelRequest(msgspec.Struct, frozen=True):
    """Which call to end: its x-request-id."""

    request_id: str


CANCEL = Endpoint("/admin/cancel", CancelRequest)


class Cancelled(msgspec.Struct, frozen=True):
    """How many open calls had that id and are ended."""

    cancelled: int


class PrefixCacheReset(msgspec.Struct, frozen=True):
    """How many cached blocks were forgotten; those of open requests stay."""

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
