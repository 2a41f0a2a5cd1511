"""Search conditions as SQL for SQLite or PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.gateway.request_log.columns import BODIES, COLUMN_NAMES, Value, quoted, record_of
from headrace.gateway.request_log.filters import Page, RecordFilter

_EQUAL = ("model", "key", "team", "organisation", "outcome", "session", "variant")


class Words(NamedTuple):
    """SQL in which the two stores differ."""

    table: str
    place: str
    like: str
    """Ignores case."""


SQLITE = Words("requests", "?", "LIKE")
POSTGRESQL = Words("headrace.requests", "%s", "ILIKE")


class Query(NamedTuple):
    """A statement with its values."""

    statement: str
    values: tuple[Value, ...]
    """In the order of their places in the statement."""


def newest_query(wanted: RecordFilter, words: Words) -> Query:
    """A query for one row more than requested, which shows whether there are more."""
    conditions: list[str] = []
    values: list[Value] = []

    def add(condition: str, *given: Value) -> None:
        conditions.append(condition)
        values.extend(given)

    place = words.place
    for name in _EQUAL:
        if (value := getattr(wanted, name)) is not None:
            add(f'"{name}" = {place}', value)
    if wanted.since_s is not None:
        add(f'"line" >= {place}', line_at(wanted.since_s))
    if wanted.until_s is not None:
        add(f'"line" < {place}', line_at(wanted.until_s))
    if wanted.least_cost_nusd is not None:
        add(f'"cost_nusd" >= {place}', wanted.least_cost_nusd)
    if wanted.least_ms is not None:
        add(f'"total_ms" >= {place}', wanted.least_ms)
    if wanted.after is not None:
        add(f'"line" < {place}', wanted.after)
    if wanted.text:
        tried = [(body, form) for form in _forms(wanted.text) for body in BODIES]
        either = " OR ".join(f"\"{body}\" {words.like} {place} ESCAPE '!'" for body, _ in tried)
        add(f"({either})", *(f"%{form}%" for _, form in tried))
    where = " AND ".join(conditions) or "1 = 1"
    columns = ", ".join(
        "NULL" if name in BODIES and not wanted.bodies else f'"{name}"' for name in COLUMN_NAMES
    )
    return Query(
        f'SELECT {columns} FROM {words.table} WHERE {where} ORDER BY "line" DESC LIMIT {place}',
        (*values, wanted.limit + 1),
    )


def page_of(rows: Sequence[tuple[Any, ...]], wanted: RecordFilter) -> Page:
    """A page from the rows of `newest_query`. Raises RequestLogError."""
    records = [record_of(row) for row in rows[: wanted.limit]]
    return Page(records, records[-1].line if len(rows) > wanted.limit else None)


def find_query(request_id: str, words: Words) -> Query:
    """A query by id or line, the newest first."""
    place = words.place
    return Query(
        f'SELECT {quoted()} FROM {words.table} WHERE "line" = {place} OR "id" = {place} '
        'ORDER BY "line" DESC LIMIT 1',
        (request_id, request_id),
    )


def line_at(at_s: float) -> str:
    """The smallest line of this moment."""
    return line_at_ms(round(at_s * 1000))


def line_at_ms(at_ms: int) -> str:
    """See `line_at`."""
    return f"{max(0, at_ms):012x}"


def _forms(text: str) -> list[str]:
    """The text as it may be written inside JSON strings, for LIKE."""
    written = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)}
    return [
        form.replace("!", "!!").replace("%", "!%").replace("_", "!_") for form in sorted(written)
    ]
