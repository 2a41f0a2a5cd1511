"""Writes measurements down as they are made: a visit with all its requests is one transaction.

Whatever ends the process, what was committed is there, and a visit that was not is as if it had not
begun. Rounds and sessions that have no end were cut off.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.bench.providers.identity import Facts
from headrace.bench.providers.rows import REQUEST_COLUMNS, RequestRow
from headrace.bench.providers.schedule import Schedule
from headrace.bench.providers.schema import open_to_write
from headrace.errors import HeadraceError

_INSERT_REQUEST = (
    f"INSERT INTO requests (visit, {', '.join(REQUEST_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (len(REQUEST_COLUMNS) + 1))})"
)


class Before(NamedTuple):
    """The last session's workload, its providers by name, and its schedule."""

    workload: Facts
    providers: dict[str, Facts]
    schedule: Schedule


class OpenRound(NamedTuple):
    """The last round where it has no end. measured: ids of providers that need no other visit."""

    id: int
    number: int
    slot: int | None
    measured: frozenset[int]


class Store:
    """A database that this process writes. To be closed."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a file that is something else, or cannot be written."""
        self.path = path
        self._connection = open_to_write(path)

    def close(self) -> None:
        """Nothing more will be written."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Raises HeadraceError where it cannot be written; what was before is kept."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                # A full disk has ended it already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise HeadraceError(
                f"--db {self.path}: cannot be written: {error}; what was written before is kept"
            ) from error

    def last_session(self) -> Before | None:
        """None in a new database."""
        found = self._connection.execute(
            "SELECT w.facts, s.providers, s.origin_at, s.interval_s, s.duration_s "
            "FROM sessions s JOIN workloads w ON w.id = s.workload ORDER BY s.id DESC LIMIT 1"
        ).fetchone()
        if found is None:
            return None
        ids = msgspec.json.decode(found[1], type=list[int])
        rows = self._connection.execute(
            f"SELECT name, facts FROM providers WHERE id IN ({', '.join('?' * len(ids))})", ids
        ).fetchall()
        providers = {name: msgspec.json.decode(facts) for name, facts in rows}
        return Before(msgspec.json.decode(found[0]), providers, Schedule(*found[2:]))

    def begin_session(
        self,
        workload: Facts,
        providers: Mapping[str, tuple[Facts, Facts]],
        schedule: Schedule,
        about: Mapping[str, Any],
        now: float,
    ) -> tuple[int, int, dict[str, int]]:
        """Ids of the session, of its workload and of its providers.

        providers: by name, facts and what is said beside them.
        """
        with self._transaction() as on:
            workload_id = _id_of(
                on,
                "INSERT OR IGNORE INTO workloads (facts) VALUES (?)",
                "SELECT id FROM workloads WHERE facts = ?",
                (_json(workload),),
            )
            ids = {}
            for name, (facts, said) in providers.items():
                on.execute(
                    "INSERT INTO providers (name, facts, said) VALUES (?, ?, ?) "
                    "ON CONFLICT (name, facts) DO UPDATE SET said = excluded.said",
                    (name, _json(facts), _json(said)),
                )
                ids[name] = on.execute(
                    "SELECT id FROM providers WHERE name = ? AND facts = ?", (name, _json(facts))
                ).fetchone()[0]
            session = on.execute(
                "INSERT INTO sessions (workload, began_at, origin_at, interval_s, duration_s, "
                "providers, about) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (workload_id, now, *schedule, _json(list(ids.values())), _json(about)),
            ).lastrowid
        assert session is not None
        return session, workload_id, ids

    def end_session(self, session: int, now: float) -> None:
        """It ended by itself or was asked to."""
        with self._transaction() as on:
            on.execute("UPDATE sessions SET ended_at = ? WHERE id = ?", (now, session))

    def last_slot(self, schedule: Schedule) -> int | None:
        """Of rounds under this schedule."""
        found = self._connection.execute(
            "SELECT max(slot) FROM rounds r JOIN sessions s ON s.id = r.session "
            "WHERE s.origin_at = ? AND s.interval_s = ?",
            (schedule.origin_at, schedule.interval_s),
        ).fetchone()[0]
        return None if found is None else int(found)

    def open_round(self) -> OpenRound | None:
        """The last round, where not all of its providers have been measured."""
        found = self._connection.execute(
            "SELECT id, number, slot, ended_at FROM rounds ORDER BY id DESC LIMIT 1"
        ).fetchone()
        if found is None or found[3] is not None:
            return None
        measured = self._connection.execute(
            "SELECT provider FROM visits WHERE round = ? AND outcome NOT IN "
            "('interrupted', 'paused', 'refused')",
            (found[0],),
        ).fetchall()
        return OpenRound(found[0], found[1], found[2], frozenset(row[0] for row in measured))

    def begin_round(
        self, session: int, workload: int, slot: int | None, due_at: float, now: float
    ) -> tuple[int, int]:
        """Its id and its number in the database."""
        with self._transaction() as on:
            number = on.execute("SELECT coalesce(max(number) + 1, 0) FROM rounds").fetchone()[0]
            made = on.execute(
                "INSERT INTO rounds (session, workload, number, slot, due_at, began_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (session, workload, number, slot, due_at, now),
            ).lastrowid
        assert made is not None
        return made, number

    def end_round(self, round_id: int, now: float) -> None:
        """Every provider has been measured or is paused."""
        with self._transaction() as on:
            on.execute("UPDATE rounds SET ended_at = ? WHERE id = ?", (now, round_id))

    def add_visit(
        self,
        round_id: int,
        provider: int,
        *,
        place: int,
        began_at: float,
        ended_at: float,
        outcome: str,
        message: str,
        client_bound: bool | None,
        requests: Sequence[RequestRow],
    ) -> None:
        """All of it or nothing."""
        with self._transaction() as on:
            visit = on.execute(
                "INSERT INTO visits (round, provider, place, began_at, ended_at, outcome, message, "
                "client_bound) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (round_id, provider, place, began_at, ended_at, outcome, message, client_bound),
            ).lastrowid
            on.executemany(
                _INSERT_REQUEST, [(visit, *msgspec.structs.astuple(row)) for row in requests]
            )


def _id_of(on: sqlite3.Connection, insert: str, select: str, values: tuple[Any, ...]) -> int:
    on.execute(insert, values)
    return int(on.execute(select, values).fetchone()[0])


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
