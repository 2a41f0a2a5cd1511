"""What is sent and taken on the paths about the server itself: health, version and /admin."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.protocol.openai.error import ErrorDetail
from headrace.protocol.request import Endpoint
from headrace.server.admission.open_calls import OpenCallFacts


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of the server; a 503 with an error unless the status is "ok" or "ready"."""

    status: Annotated[
        str,
        Meta(
            description="ok, loading, restarting, stalled or dead; of /ready: ready, draining, or "
            "one of those."
        ),
    ]
    uptime_s: float
    phase: Annotated[str | None, Meta(description="While loading, what the engine does.")] = None
    progress: Annotated[
        float | None, Meta(description="While loading, the share of the weights it has.")
    ] = None
    restarts: Annotated[
        int, Meta(description="Restarts of the engine since the server started.")
    ] = 0
    failure: Annotated[str, Meta(description="Failure of the previous engine.")] = ""
    silent_s: Annotated[
        float, Meta(description="Seconds since the engine was last heard from.")
    ] = 0.0
    retry_after_s: Annotated[
        float | None, Meta(description="Seconds after which it may serve again.")
    ] = None
    error: ErrorDetail | None = None


class Load(msgspec.Struct, frozen=True):
    """The load of the server."""

    server_load: Annotated[
        int, Meta(description="Open requests for generation, waiting ones included.")
    ]


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
    """The start of another engine."""

    status: str
    restarts: Annotated[
        int,
        Meta(
            description="Engines started after the first, whatever the cause; without this one "
            "where it has not begun."
        ),
    ]
    retry_after_s: Annotated[
        float | None, Meta(description="A guess of the seconds until it serves.")
    ] = None


class Settings(msgspec.Struct, frozen=True):
    """The settings by name, secrets hidden."""

    server: dict[str, Any]
    engine: Annotated[dict[str, Any] | None, Meta(description="null until they are known.")]
