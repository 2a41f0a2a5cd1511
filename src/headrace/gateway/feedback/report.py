"""Scores by model, target, variant or day: how many, their mean, and how sure that is; and those of
one request."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

import msgspec

from headrace.config.load import nearest
from headrace.errors import ConfigError, shown
from headrace.gateway.feedback.score import Score
from headrace.gateway.ledger.compare import wilson
from headrace.gateway.ledger.days import Days

_GROUPINGS = {
    "model": "model",
    "target": "target",
    "variant": "variant",
    "day": "strftime('%Y-%m-%d', at_ms / 1000, 'unixepoch')",
    "name": "name",
    "key": "key",
}
GROUPINGS = tuple(_GROUPINGS)
# Student's t at 97.5 %, by degrees of freedom from 1 on: NIST/SEMATECH e-Handbook, 1.3.6.7.2.
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
          2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
          2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
_Z_975 = 1.960


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of one group."""

    by: dict[str, str]
    """The group's names, in the order requested."""
    count: int
    mean: float
    low: float | None
    """With `high` an interval that holds the true mean with 95 % confidence: Wilson's for thumbs
    (all scores 0 or 1), else Student's; None for a single score that is not a thumb."""
    high: float | None


def scores_by(
    connection: sqlite3.Connection, by: Sequence[str], name: str | None, days: Days
) -> list[Scores]:
    """Scores by group, in the order of their names; those with this name, None for all. Days are
    those on which the requests came. Raises ConfigError for an unknown grouping, sqlite3.Error."""
    for at, one in enumerate(by):
        if one not in _GROUPINGS:
            meant = nearest(one, GROUPINGS) or f"; there are {', '.join(GROUPINGS)}"
            raise ConfigError(f"--by: cannot group by {shown(one)}{meant}")
        if one in by[:at]:
            raise ConfigError(f"--by: {one} is given twice; give it once")
    if not _has_scores(connection):
        return []
    wanted: list[tuple[str, str | int | None]] = [
        ("name = ?", name), ("at_ms >= ?", days.since_ms), ("at_ms < ?", days.before_ms)
    ]  # fmt: skip
    given = [(text, value) for text, value in wanted if value is not None]
    where = " AND ".join(text for text, _ in given) or "1"
    groups = [_GROUPINGS[one] for one in by]
    # Deviations from the group's own mean: sums of squares of large scores would cancel out.
    means = f"SELECT *, AVG(score) OVER ({_partition(groups)}) AS mean FROM feedback WHERE {where}"
    columns = [
        *groups, "COUNT(*)", "AVG(score)", "SUM((score - mean) * (score - mean))",
        "SUM(score)", "MIN(score IN (0, 1))",
    ]  # fmt: skip
    group = f" GROUP BY {', '.join(groups)} ORDER BY {', '.join(groups)}" if groups else ""
    rows = connection.execute(
        f"SELECT {', '.join(columns)} FROM ({means}){group}", [value for _, value in given]
    )
    return [_scores(by, row) for row in rows if row[len(by)]]


def scores_of(connection: sqlite3.Connection, request_id: str) -> tuple[Score, ...]:
    """All that were given to a request, with what was said of it; the first first. Raises
    sqlite3.Error."""
    if not _has_scores(connection):
        return ()
    rows = connection.execute(
        f"SELECT {', '.join(Score.__struct_fields__)} FROM feedback WHERE request_id = ? "
        "ORDER BY given_ms, name, key",
        (request_id,),
    )
    return tuple(Score(**dict(zip(Score.__struct_fields__, row, strict=True))) for row in rows)


def _partition(groups: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(groups)}" if groups else ""


def _scores(by: Sequence[str], row: tuple[float, ...]) -> Scores:
    names = dict(zip(by, map(str, row[: len(by)]), strict=True))
    count, mean, squares, total, are_thumbs = row[len(by) :]
    number = int(count)
    low: float | None
    high: float | None
    if are_thumbs:
        low, high = wilson(round(total), number)
    elif number < 2:
        low = high = None
    else:
        t = _T_975[number - 2] if number - 2 < len(_T_975) else _Z_975
        half = t * math.sqrt(squares / (number - 1) / number)
        low, high = mean - half, mean + half
    return Scores(by=names, count=number, mean=mean, low=low, high=high)


def _has_scores(connection: sqlite3.Connection) -> bool:
    """The table is made by the first score."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'feedback'"
    return connection.execute(query).fetchone() is not None
