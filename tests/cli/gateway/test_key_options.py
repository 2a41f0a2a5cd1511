"""What options of keys take."""

from __future__ import annotations

import datetime as dt

import click
import pytest

from headrace.cli.gateway.keys.options import Until


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        ("2026-12-31", "2027-01-01T00:00"),
        ("20261231", "2027-01-01T00:00"),
        ("2026-12-31T00:00", "2026-12-31T00:00"),
        ("2026-12-31T18", "2026-12-31T18:00"),
        ("2026-12-31t18", "2026-12-31T18:00"),
        ("2026-12-31 18", "2026-12-31T18:00"),
        ("20261231 1800", "2026-12-31T18:00"),
        ("2026-12-31 18:00+02:00", "2026-12-31T16:00"),
    ],
)
def test_a_day_lasts_to_its_end_and_a_time_is_that_time(value: str, ends: str) -> None:
    at = dt.datetime.fromisoformat(ends).replace(tzinfo=dt.UTC)
    assert Until().convert(value, None, None) == at.timestamp() * 1000


@pytest.mark.parametrize("value", ["soon", "2026-12-32", "2026-12-31 25"])
def test_what_is_neither_is_told(value: str) -> None:
    with pytest.raises(click.BadParameter, match="not a day like"):
        Until().convert(value, None, None)
