"""Whether calls are traced, and the way to whoever does it; OpenTelemetry is imported only then."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from headrace.errors import ConfigError, shown
from headrace.telemetry.call import CallRecord

# Where a collector takes traces over HTTP, when a URL names no path (OTLP specification).
TRACES_PATH = "/v1/traces"

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Tracing(Protocol):
    """Takes calls that have ended. Never waits and never raises; a collector may be dead."""

    def call_ended(self, record: CallRecord, *, model: str, ended_s: float) -> None:
        """Make spans of a call; ended_s is of the clock its times are of."""

    def close(self) -> None:
        """Send what is left, for a moment at most."""


def traces_url(endpoint: str) -> str:
    """The URL spans are posted to; ConfigError where `endpoint` is none."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"otlp_traces_endpoint: {shown(endpoint)} is not a URL of a collector; "
            "it should look like http://localhost:4318"
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{TRACES_PATH}"


def require_tracing(endpoint: str | None) -> None:
    """Raise ConfigError where calls are to be traced and cannot be."""
    if endpoint is None:
        return
    traces_url(endpoint)
    try:
        missing = [name for name in _NEEDED if find_spec(name) is None]
    except ModuleNotFoundError:  # of a package that one of them would be in
        missing = list(_NEEDED)
    if missing:
        raise ConfigError(
            f"otlp_traces_endpoint: {missing[0]} is not installed, and tracing needs it; "
            "run `pip install headrace[otel]`, or leave --otlp-traces-endpoint out"
        )


def open_tracing(endpoint: str | None) -> Tracing | None:
    """What traces calls to a collector; None where none is configured. Raises ConfigError."""
    if endpoint is None:
        return None
    require_tracing(endpoint)
    from headrace.server.spans import open_spans

    return open_spans(traces_url(endpoint))
