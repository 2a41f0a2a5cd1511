"""Whether calls are traced, and the way to whoever does it; OpenTelemetry is imported only then."""

from __future__ import annotations

from typing import Protocol

from headrace.errors import ConfigError
from headrace.telemetry.call import CallRecord
from headrace.telemetry.traces_address import missing_for_tracing, traces_url

SETTING = "otlp_traces_endpoint"


class Tracing(Protocol):
    """A tracer of calls that have ended. Never waits and never raises; a collector may be dead."""

    def call_ended(self, record: CallRecord, *, model: str, ended_s: float) -> None:
        """Make spans of a call; ended_s is of the clock its times are of."""

    def close(self) -> None:
        """Send what is left, for a moment at most."""


def require_tracing(endpoint: str | None) -> None:
    """Raise ConfigError where calls are to be traced and cannot be."""
    if endpoint is None:
        return
    traces_url(endpoint, SETTING)
    missing = missing_for_tracing()
    if missing is not None:
        raise ConfigError(
            f"{SETTING}: {missing} is not installed, and tracing needs it; run `pip install "
            "headrace[otel]`, or omit --otlp-traces-endpoint"
        )


def open_tracing(endpoint: str | None) -> Tracing | None:
    """What traces calls to a collector; None where none is configured. Raises ConfigError."""
    if endpoint is None:
        return None
    require_tracing(endpoint)
    from headrace.server.observability.spans import open_spans

    return open_spans(traces_url(endpoint, SETTING))
