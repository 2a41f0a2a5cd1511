"""Reads a providers database for a report, also while it is being written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.bench.providers.rows import REQUEST_COLUMNS, RequestRow, SeriesRow, VisitRow
from headrace.bench.providers.schema import open_to_read
from headrace.errors import ConfigError

_FLAG_AT = REQUEST_COLUMNS.index("new_connection")


class Contents(NamedTuple):
    """The contents of a database."""

    series: tuple[SeriesRow, ...]
    """Series in the order of the database."""
    visits: tuple[VisitRow, ...]
    """Ascending in time."""
    about: dict[str, object]
    """Metadata of the last session."""
    rounds: int
    """Rounds that were begun for a slot."""
    missed: int


def read_store(path: Path, *, since: float | None = None) -> Contents:
    """since: of visits that began before it nothing is read. ConfigError as `open_to_read`."""
    connection = open_to_read(path)
    try:
        # One snapshot, whatever is written meanwhile.
        connection.execute("BEGIN")
        return _contents(connection, since if since is not None else 0.0)
    except (sqlite3.Error, msgspec.DecodeError, KeyError) as error:
        raise ConfigError(
            f"--db {path}: is damaged: {error}; `sqlite3 {path.name} .recover` saves what is left"
        ) from error
    finally:
        connection.close()


def _contents(on: sqlite3.Connection, since: float) -> Contents:
    found = on.execute(
        "SELECT v.id, v.round, v.provider, r.workload, v.place, v.began_at, v.ended_at, v.outcome, "
        "v.message, v.client_bound, r.number FROM visits v JOIN rounds r ON r.id = v.round "
        "WHERE v.began_at >= ? ORDER BY v.began_at, v.id",
        (since,),
    ).fetchall()
    requests = _requests(on, since)
    pairs = dict.fromkeys((row[3], row[2]) for row in found)
    series = _series(on, pairs)
    numbers = {(one.workload_id, provider): one.id for (_, provider), one in series.items()}
    visits = tuple(
        VisitRow(
            round=row[10],
            series=numbers[row[3], row[2]],
            place=row[4],
            began_at=row[5],
            ended_at=row[6],
            outcome=row[7],
            message=row[8],
            client_bound=None if row[9] is None else bool(row[9]),
            requests=tuple(requests.get(row[0], ())),
        )
        for row in found
    )
    rounds, missed = _rounds(on, since)
    return Contents(tuple(series.values()), visits, _about(on), rounds, missed)


def _requests(on: sqlite3.Connection, since: float) -> dict[int, list[RequestRow]]:
    """By the visit's id."""
    columns = ", ".join(f"q.{name}" for name in REQUEST_COLUMNS)
    rows = on.execute(
        f"SELECT q.visit, {columns} FROM requests q JOIN visits v ON v.id = q.visit "
        "WHERE v.began_at >= ? ORDER BY q.visit, q.phase DESC, q.position",
        (since,),
    )
    found: dict[int, list[RequestRow]] = {}
    for visit, *values in rows:
        values[_FLAG_AT] = bool(values[_FLAG_AT])
        fields = dict(zip(REQUEST_COLUMNS, values, strict=True))
        found.setdefault(visit, []).append(RequestRow(**fields))
    return found


def _series(
    on: sqlite3.Connection, pairs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], SeriesRow]:
    """By workload and provider, in the order of the file that was measured last with each."""
    workloads = {
        key: msgspec.json.decode(facts)
        for key, facts in on.execute("SELECT id, facts FROM workloads")
    }
    providers = {
        key: (name, msgspec.json.decode(facts), msgspec.json.decode(said))
        for key, name, facts, said in on.execute("SELECT id, name, facts, said FROM providers")
    }
    rank: dict[tuple[int, int], int] = {}
    for workload, listed in on.execute("SELECT workload, providers FROM sessions ORDER BY id"):
        ids = msgspec.json.decode(listed, type=list[int])
        rank |= {(workload, provider): at for at, provider in enumerate(ids)}
    ordered = sorted(pairs, key=lambda pair: (pair[0], rank[pair], pair[1]))
    return {
        (workload, provider): SeriesRow(
            id=number,
            name=providers[provider][0],
            provider=providers[provider][1],
            workload=workloads[workload],
            said=providers[provider][2],
            workload_id=workload,
        )
        for number, (workload, provider) in enumerate(ordered)
    }


def _rounds(on: sqlite3.Connection, since: float) -> tuple[int, int]:
    """Rounds that were begun, and slots between the first and the last of a schedule that were
    not."""
    rounds = on.execute("SELECT count(*) FROM rounds WHERE began_at >= ?", (since,)).fetchone()[0]
    missed = on.execute(
        "SELECT sum(last - first + 1 - slots) FROM ("
        "SELECT max(r.slot) AS last, min(r.slot) AS first, count(DISTINCT r.slot) AS slots "
        "FROM rounds r JOIN sessions s ON s.id = r.session "
        "WHERE r.slot IS NOT NULL AND r.began_at >= ? GROUP BY s.origin_at, s.interval_s)",
        (since,),
    ).fetchone()[0]
    return int(rounds), int(missed or 0)


def _about(on: sqlite3.Connection) -> dict[str, object]:
    last = on.execute("SELECT about FROM sessions ORDER BY id DESC LIMIT 1").fetchone()
    found = msgspec.json.decode(last[0]) if last is not None else {}
    return found if isinstance(found, dict) else {}
