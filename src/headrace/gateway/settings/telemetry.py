"""The gateway's log and traces."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log on standard error, with a line per request at level info. Read only at start."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="Lines for people, or JSON objects for machines.")
    ] = "text"


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """OpenTelemetry spans (`pip install 'headrace[otel]'`), which continue a client's trace."""

    endpoint: Annotated[
        str | None,
        Meta(
            description="Collector that spans are sent to by OTLP over HTTP, as "
            "http://localhost:4318; "
            "without it there are no spans."
        ),
    ] = None
    pass_on: Annotated[
        Literal["own", "all", "none"],
        Meta(
            description="Which providers get `traceparent`: those on this machine or in a private "
            "network, all, or none."
        ),
    ] = "own"
