"""A record as a row of the table, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.gateway.request_log.errors import RequestLogError
from headrace.gateway.request_log.record import LoggedBody, LogRecord

Value = str | int | float | None

# Of what providers say of a failure; the rest of a page of HTML tells nobody anything.
_MOST_ERROR_CHARACTERS = 2000

# Name and type of each column, in SQLite and PostgreSQL alike; `row_of` fills them in this order.
COLUMNS = (
    ("line", "TEXT PRIMARY KEY"),
    ("id", "TEXT NOT NULL"),
    ("at_ms", "BIGINT NOT NULL"),
    ("dialect", "TEXT NOT NULL"),
    ("path", "TEXT NOT NULL"),
    ("model", "TEXT NOT NULL"),
    ("target", "TEXT"),
    ("provider", "TEXT"),
    ("outcome", "TEXT NOT NULL"),
    ("status", "INTEGER NOT NULL"),
    ("stream", "INTEGER NOT NULL"),
    ("total_ms", "DOUBLE PRECISION NOT NULL"),
    ("first_token_ms", "DOUBLE PRECISION"),
    ("finish", "TEXT"),
    ("input_tokens", "BIGINT"),
    ("output_tokens", "BIGINT"),
    ("cost_nusd", "BIGINT"),
    ("organisation", "TEXT NOT NULL"),
    ("team", "TEXT NOT NULL"),
    ("user", "TEXT NOT NULL"),
    ("key", "TEXT NOT NULL"),
    ("tags", "TEXT NOT NULL"),
    ("session", "TEXT NOT NULL"),
    ("trace_id", "TEXT NOT NULL"),
    ("variant", "TEXT NOT NULL"),
    ("cache", "TEXT NOT NULL"),
    ("error", "TEXT NOT NULL"),
    ("without_bodies", "TEXT NOT NULL"),
    # What is said of a body beside its text: what LoggedBody has, as JSON.
    ("request_about", "TEXT"),
    ("reply_about", "TEXT"),
    ("request", "TEXT"),
    ("reply", "TEXT"),
)
COLUMN_NAMES = tuple(name for name, _ in COLUMNS)
BODIES = ("request", "reply")

_encode = msgspec.json.Encoder().encode


def quoted(names: tuple[str, ...] = COLUMN_NAMES) -> str:
    """Quoted names for a statement: `user` is a reserved word of PostgreSQL."""
    return ", ".join(f'"{name}"' for name in names)


def row_of(record: LogRecord) -> tuple[Value, ...]:
    """Values in the order of the columns."""
    request, reply = record.request, record.reply
    told: dict[str, Value] = {
        name: getattr(record, name)
        for name in COLUMN_NAMES
        if name not in ("at_ms", "request_about", "reply_about", *BODIES)
    }
    told |= {
        "at_ms": round(record.at_s * 1000),
        "stream": int(record.stream),
        "tags": _encode(record.tags).decode(),
        "error": record.error[:_MOST_ERROR_CHARACTERS],
        "request_about": _about(request),
        "reply_about": _about(reply),
        "request": None if request is None else request.text,
        "reply": None if reply is None else reply.text,
    }
    return tuple(_plain(told[name]) for name in COLUMN_NAMES)


def record_of(row: tuple[Any, ...]) -> LogRecord:
    """The record in a row with all columns; bodies that are None are absent. Raises
    RequestLogError."""
    one = dict(zip(COLUMN_NAMES, row, strict=True))
    try:
        found = {
            **one,
            "at_s": one["at_ms"] / 1000,
            "stream": bool(one["stream"]),
            "tags": msgspec.json.decode(one["tags"]),
            "request": _body(one.pop("request_about"), one.pop("request")),
            "reply": _body(one.pop("reply_about"), one.pop("reply")),
        }
        return msgspec.convert(found, LogRecord)
    except (msgspec.MsgspecError, TypeError) as error:
        raise RequestLogError(f"a row of the request log is damaged: {error}") from error


def _about(body: LoggedBody | None) -> str | None:
    if body is None:
        return None
    return _encode(msgspec.structs.replace(body, text="")).decode()


def _body(about: str | None, text: str | None) -> LoggedBody | None:
    if about is None or text is None:
        return None
    return msgspec.structs.replace(msgspec.json.decode(about, type=LoggedBody), text=text)


def _plain(value: Value) -> Value:
    """A value as PostgreSQL accepts texts: without NUL, which JSON contains only escaped, and
    without halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return value
