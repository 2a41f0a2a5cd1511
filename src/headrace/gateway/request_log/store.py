"""The interface of the request log to its writers and readers."""

from __future__ import annotations

from typing import Protocol

from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.line import Line
from headrace.gateway.request_log.record import LogRecord


class RequestLog(Protocol):
    """The request log of one gateway; reads see what other processes write as well."""

    def take(self, line: Line) -> None:
        """Keep it. Never waits and never raises; from the event loop's thread only."""

    async def newest(self, wanted: RecordFilter) -> Page:
        """Raises RequestLogError while the store cannot be read."""

    async def find(self, request_id: str) -> LogRecord | None:
        """The newest with this id of a request, or the one with this `line`; with its bodies.

        Raises RequestLogError while the store cannot be read.
        """
