"""A range of days, in UTC."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from headrace.errors import ConfigError, shown

_MS_PER_S = 1000
_MS_PER_DAY = 86_400_000


class Days(NamedTuple):
    """A range of days, both included; None: from the first request, to the last."""

    since: dt.date | None = None
    until: dt.date | None = None

    @property
    def since_ms(self) -> int | None:
        """Unix time in milliseconds from which on requests belong to it."""
        return None if self.since is None else _ms_at(self.since)

    @property
    def before_ms(self) -> int | None:
        """Unix time in milliseconds from which on they do not any more."""
        return None if self.until is None else _ms_at(self.until) + _MS_PER_DAY


def days_of(since: str | None, until: str | None) -> Days:
    """Days as people write them: 2026-11-01. Raises ConfigError."""
    found = Days(_day("--since", since), _day("--until", until))
    if found.since is not None and found.until is not None and found.since > found.until:
        raise ConfigError(
            f"--since {found.since} is after --until {found.until}; give the earlier day first"
        )
    return found


def _day(name: str, text: str | None) -> dt.date | None:
    if text is None:
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}: {shown(text)} is not a day; write it as 2026-11-01 (days are UTC days)"
        ) from None


def _ms_at(day: dt.date) -> int:
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    return round(midnight.timestamp()) * _MS_PER_S
