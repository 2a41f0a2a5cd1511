"""What of the request log each configuration decides anew."""

from __future__ import annotations

from collections.abc import Callable

from headrace.gateway.request_log.visit import RequestLogging
from headrace.gateway.request_log.written_log import WrittenLog
from headrace.gateway.settings.request_log import RequestLogSettings


def request_logging_of(
    settings: RequestLogSettings, log: WrittenLog | None
) -> RequestLogging | None:
    """None where nothing is kept."""
    return RequestLogging(settings, log) if log is not None and settings.enabled else None


def log_change_of(settings: RequestLogSettings, log: WrittenLog | None) -> Callable[[], None]:
    """What makes the log keep what these settings say. Raises ConfigError."""
    if log is None:
        return lambda: None
    from headrace.gateway.building.request_log import recorder_of

    recorder = recorder_of(settings)
    return lambda: log.change(recorder, settings.retention_days)
