"""Conditions for searching the log."""

from __future__ import annotations

from typing import NamedTuple

from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.serving.entry import Outcome


class RecordFilter(NamedTuple):
    """Conditions on records; None: any."""

    model: str | None = None
    """By the name that clients used."""
    key: str | None = None
    team: str | None = None
    organisation: str | None = None
    outcome: Outcome | None = None
    since_s: float | None = None
    """Unix time, inclusive."""
    until_s: float | None = None
    """Unix time, exclusive."""
    text: str | None = None
    """In the request or the reply, ignoring the case of ASCII letters; as people write it, not as
    JSON escapes it."""
    least_cost_nusd: int | None = None
    least_ms: float | None = None
    """From arrival to end."""
    session: str | None = None
    variant: str | None = None
    after: str | None = None
    """The `next` of the previous page."""
    limit: int = 20
    """The most records to return."""
    bodies: bool = False
    """Whether the records include their bodies, which are large."""


class Page(NamedTuple):
    """A page of records, newest first."""

    records: list[LogRecord]
    next: str | None
    """For `RecordFilter.after`; None if there are no more."""
