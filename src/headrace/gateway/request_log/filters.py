"""Which records of the log somebody looks for."""

from __future__ import annotations

from typing import NamedTuple

from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.serving.entry import Outcome


class RecordFilter(NamedTuple):
    """None: any. model: by the name clients asked for. since_s: Unix time, of it or later;
    until_s: before it. text: in the request or the reply, whatever its case is (of ASCII); of
    texts as people write them, not as JSON escapes them. least_ms: from arrival to end.

    after: the `next` of the page before. limit: at most so many. bodies: whether the records have
    them; they are large.
    """

    model: str | None = None
    key: str | None = None
    team: str | None = None
    organisation: str | None = None
    outcome: Outcome | None = None
    since_s: float | None = None
    until_s: float | None = None
    text: str | None = None
    least_cost_nusd: int | None = None
    least_ms: float | None = None
    session: str | None = None
    variant: str | None = None
    after: str | None = None
    limit: int = 20
    bodies: bool = False


class Page(NamedTuple):
    """The newest first. next: for `RecordFilter.after`; None where there are no more."""

    records: list[LogRecord]
    next: str | None
