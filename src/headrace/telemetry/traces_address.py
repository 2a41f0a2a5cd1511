"""Where spans are posted to, and whether they can be made at all."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import urlsplit

from headrace.errors import ConfigError, shown

# Where a collector takes traces over HTTP, when a URL names no path (OTLP specification).
TRACES_PATH = "/v1/traces"

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


def traces_url(endpoint: str, setting: str) -> str:
    """The URL spans are posted to; ConfigError, naming the setting, where `endpoint` is none."""
    try:
        parts = urlsplit(endpoint)
        there = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # of brackets that are no address
        there = False
    if not there:
        raise ConfigError(
            f"{setting}: {shown(endpoint)} is not the URL of a collector; write one such as "
            "http://localhost:4318"
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}{TRACES_PATH}"


def missing_for_tracing() -> str | None:
    """A package of the extra `otel` that is not installed; None if all are."""
    try:
        return next((name for name in _NEEDED if find_spec(name) is None), None)
    except ModuleNotFoundError:  # of a package that one of them would be in
        return _NEEDED[0]
