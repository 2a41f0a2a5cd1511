"""A stretch of time, in the parts it is shown by."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from headrace.errors import ConfigError, shown

Part = Literal["minute", "hour", "day"]
PARTS: tuple[Part, ...] = get_args(Part)

_LENGTH_MS: dict[Part, int] = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
# How long one is where nobody says when it begins: what people look at first.
_USUAL: dict[Part, int] = {"minute": 60, "hour": 24, "day": 30}
# A week of minutes is 10,080; more points than a screen has columns show nothing more.
_MOST_PARTS = 11_000
# Of four-digit years, which is what days are written with.
_MOST_MS = 253_402_300_800_000
_NAMES = {"minute": "%Y-%m-%dT%H:%MZ", "hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d"}


class Span(NamedTuple):
    """Unix times in milliseconds: from since_ms on, and before before_ms; None without an end."""

    since_ms: int | None = None
    before_ms: int | None = None


def span_of(since: str | None, until: str | None) -> Span:
    """Times as people and programs write them: 2026-11-01, 2026-11-01T10:00Z, or Unix seconds.

    A day given as `until` is part of it; times without a zone are UTC's. Raises ConfigError.
    """
    since_ms = None if since is None else _time_ms("since", since)
    before_ms = None
    if until is not None:
        is_day = len(until) == len("2026-11-01") and until.count("-") == 2
        before_ms = _time_ms("until", until) + (_LENGTH_MS["day"] if is_day else 0)
    if since_ms is not None and before_ms is not None and since_ms >= before_ms:
        raise ConfigError(
            f"since: {since} is not before until, {until}; give the earlier one first"
        )
    return Span(since_ms, before_ms)


def parts_of(span: Span, by: Part, now_ms: int) -> tuple[int, int]:
    """Where the first interval of a span begins and the last one ends; the usual number of
    intervals up to now, if it has no ends. Raises ConfigError for too many."""
    length_ms = _LENGTH_MS[by]
    before_ms = now_ms + 1 if span.before_ms is None else span.before_ms
    end_ms = -(-before_ms // length_ms) * length_ms
    since_ms = end_ms - _USUAL[by] * length_ms if span.since_ms is None else span.since_ms
    start_ms = since_ms // length_ms * length_ms
    if (end_ms - start_ms) // length_ms > _MOST_PARTS:
        raise ConfigError(
            f"by: {(end_ms - start_ms) // length_ms:,} intervals of a {by} are more than "
            f"{_MOST_PARTS:,}; give a shorter time, or longer intervals"
        )
    return start_ms, max(end_ms, start_ms)


def names_of(start_ms: int, end_ms: int, by: Part) -> Iterator[tuple[int, str]]:
    """Where each interval begins, and its name in `usage_by`."""
    for at_ms in range(start_ms, end_ms, _LENGTH_MS[by]):
        yield at_ms, dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime(_NAMES[by])


def _time_ms(name: str, text: str) -> int:
    try:
        if text.replace(".", "", 1).isdigit():
            found = round(float(text) * 1000)
        else:
            at = dt.datetime.fromisoformat(text)
            at = at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
            found = round(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        found = -1
    if not 0 <= found <= _MOST_MS:
        raise ConfigError(
            f"{name}: {shown(text)} is not a time; write it as 2026-11-01, 2026-11-01T10:00Z or "
            "in seconds since 1970"
        )
    return found
