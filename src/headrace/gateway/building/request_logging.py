"""The parts of the request log that each configuration decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.gateway.settings.request_log import RequestLogSettings

if TYPE_CHECKING:
    from headrace.gateway.request_log.visit import RequestLogging
    from headrace.gateway.request_log.written_log import WrittenLog


def request_logging_of(
    settings: RequestLogSettings, log: WrittenLog | None
) -> RequestLogging | None:
    """The selection of requests to log; None if nothing is logged."""
    if log is None or not settings.enabled:
        return None
    from headrace.gateway.request_log.visit import RequestLogging

    return RequestLogging(settings, log)


def log_change_of(settings: RequestLogSettings, log: WrittenLog | None) -> Callable[[], None]:
    """A function that makes the log follow these settings. Raises ConfigError."""
    if log is None:
        return lambda: None
    from headrace.gateway.building.request_log import recorder_of

    recorder = recorder_of(settings)
    return lambda: log.change(recorder, settings.retention_days)
