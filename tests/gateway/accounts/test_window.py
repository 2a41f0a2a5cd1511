"""Windows: their edges by the calendar, and that rolling ones never let too much through."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.accounts.window import ROLLING_BUCKETS, WINDOW_NAMES, Window

TIMES = st.integers(min_value=0, max_value=4_102_444_800_000)  # until 2100


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("name", "at", "ends"),
    [
        ("1m", "2026-03-10T12:00:59.999", "2026-03-10T12:01:00"),
        ("5m", "2026-03-10T12:04:59.999", "2026-03-10T12:05:00"),
        ("1h", "2026-03-10T12:59:59.999", "2026-03-10T13:00:00"),
        ("1d", "2026-03-10T23:59:59.999", "2026-03-11T00:00:00"),
        ("1d", "2028-02-28T00:00:00", "2028-02-29T00:00:00"),
        ("1w", "2026-03-15T23:59:59.999", "2026-03-16T00:00:00"),
        ("1w", "2026-03-16T00:00:00", "2026-03-23T00:00:00"),
        ("1w", "2026-12-31T00:00:00", "2027-01-04T00:00:00"),
        ("1M", "2026-01-31T23:59:59.999", "2026-02-01T00:00:00"),
        ("1M", "2026-02-28T23:59:59.999", "2026-03-01T00:00:00"),
        ("1M", "2028-02-28T23:59:59.999", "2028-03-01T00:00:00"),
        ("1M", "2028-02-29T23:59:59.999", "2028-03-01T00:00:00"),
        ("1M", "2026-12-31T23:59:59.999", "2027-01-01T00:00:00"),
        ("1M", "2100-02-28T23:59:59.999", "2100-03-01T00:00:00"),
        ("1Y", "2028-12-31T23:59:59.999", "2029-01-01T00:00:00"),
        ("1Y", "2028-01-01T00:00:00", "2029-01-01T00:00:00"),
    ],
)
def test_calendar_edges(name: str, at: str, ends: str) -> None:
    window = Window(name, calendar=True)  # type: ignore[arg-type]
    bucket = window.bucket(ms(at))
    assert window.leaves_ms(bucket) == ms(ends)
    assert window.bucket(ms(ends) - 1) == bucket
    assert window.bucket(ms(ends)) == bucket + 1
    assert window.span == 0


def test_weeks_begin_on_monday() -> None:
    window = Window("1w", calendar=True)
    start = window.leaves_ms(window.bucket(0) - 1)
    assert start is not None
    assert datetime.fromtimestamp(start / 1000 + 7 * 86_400, UTC).weekday() == 0


@given(at_ms=TIMES, name=st.sampled_from(WINDOW_NAMES[:-1]), calendar=st.booleans())
def test_what_is_counted_counts_until_it_leaves(at_ms: int, name: str, calendar: bool) -> None:
    window = Window(name, calendar)  # type: ignore[arg-type]
    bucket = window.bucket(at_ms)
    leaves_ms = window.leaves_ms(bucket)
    assert leaves_ms is not None and leaves_ms > at_ms
    assert window.bucket(leaves_ms - 1) - window.span <= bucket
    assert window.bucket(leaves_ms) - window.span > bucket
    if not calendar:
        length_ms = window.length_ms
        assert length_ms is not None
        # Never less than the window, and at most one bucket more.
        assert length_ms < leaves_ms - at_ms <= length_ms + length_ms // ROLLING_BUCKETS


def test_all_time_never_ends() -> None:
    window = Window("total")
    assert window.bucket(0) == window.bucket(10**15) == 0
    assert window.leaves_ms(0) is None
    assert window.length_ms is None
