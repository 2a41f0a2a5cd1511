"""Spans of time over which something is counted: rolling, or by the calendar of UTC.

What is counted lies in numbered buckets. By the calendar there is one bucket per window: a minute,
five minutes, an hour, a day, a week from Monday, a month, a year. A rolling window has 121, each
1/120 of it, and a bucket counts until all of it is older than the window. So no span of that length
ever holds more than the limit; what was used comes back up to 1/120 of the window late. A rolling
month is 30 days, a rolling year 365.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

WindowName = Literal["1m", "5m", "1h", "1d", "1w", "1M", "1Y", "total"]
WINDOW_NAMES: tuple[WindowName, ...] = get_args(WindowName)

ROLLING_BUCKETS = 120

_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS
_WEEK_MS = 7 * _DAY_MS
_LENGTH_MS: dict[str, int] = {
    "1m": _MINUTE_MS,
    "5m": 5 * _MINUTE_MS,
    "1h": 60 * _MINUTE_MS,
    "1d": _DAY_MS,
    "1w": _WEEK_MS,
    "1M": 30 * _DAY_MS,
    "1Y": 365 * _DAY_MS,
}
_NEVER_MS = 2**62
# 1970 began on a Thursday.
_MONDAY_BEFORE_MS = 3 * _DAY_MS
_WORDS = {
    "1m": "minute",
    "5m": "5 minutes",
    "1h": "hour",
    "1d": "day",
    "1w": "week",
    "1M": "month",
    "1Y": "year",
}


class Window(msgspec.Struct, frozen=True):
    """The window of a limit or budget."""

    name: WindowName
    """Its length; "total" for all time."""
    calendar: bool = False
    """Whether it follows the calendar; rolling otherwise."""

    @property
    def length_ms(self) -> int | None:
        """The length of a rolling window, or about that of a calendar window; None for all time."""
        return _LENGTH_MS.get(self.name)

    @property
    def span(self) -> int:
        """How many buckets before the present one still count."""
        return 0 if self.calendar or self.name == "total" else ROLLING_BUCKETS

    @property
    def words(self) -> str:
        """The window as errors name it."""
        if self.name == "total":
            return "in all"
        word = _WORDS[self.name]
        return f"in this {word} (UTC)" if self.calendar else f"in the last {word}"

    def bucket(self, at_ms: int) -> int:
        """Number of the bucket for a time in milliseconds since 1970."""
        if self.name == "total":
            return 0
        if not self.calendar:
            return at_ms * ROLLING_BUCKETS // _LENGTH_MS[self.name]
        if self.name == "1w":
            return (at_ms + _MONDAY_BEFORE_MS) // _WEEK_MS
        if self.name in ("1M", "1Y"):
            date = datetime.fromtimestamp(at_ms // 1000, UTC)
            return date.year if self.name == "1Y" else date.year * 12 + date.month - 1
        return at_ms // _LENGTH_MS[self.name]

    def ends_ms(self, bucket: int) -> int:
        """When the next bucket begins."""
        if self.name == "total":
            return _NEVER_MS
        if not self.calendar:
            return -(-(bucket + 1) * _LENGTH_MS[self.name] // ROLLING_BUCKETS)
        ends_ms = self.leaves_ms(bucket)
        assert ends_ms is not None
        return ends_ms

    def leaves_ms(self, bucket: int) -> int | None:
        """When what lies in a bucket counts no more; None for never."""
        if self.name == "total":
            return None
        if not self.calendar:
            return (bucket + 1 + ROLLING_BUCKETS) * _LENGTH_MS[self.name] // ROLLING_BUCKETS
        if self.name == "1w":
            return (bucket + 1) * _WEEK_MS - _MONDAY_BEFORE_MS
        if self.name == "1Y":
            return _start_ms(bucket + 1, 1)
        if self.name == "1M":
            year, month = divmod(bucket + 1, 12)
            return _start_ms(year, month + 1)
        return (bucket + 1) * _LENGTH_MS[self.name]


def _start_ms(year: int, month: int) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000
