"""Stored responses as rows: each has its own items and points to the response it continues.

Invariants:

    a response is found by its owner, until it is deleted, too old or displaced
    what continues a response keeps its items: such a row is hidden, and removed with the last
        response that continues it
    count(found) <= max_responses and sum(bytes) <= max_bytes, after each `add`

So a conversation of n turns takes the bytes of its items once, and a turn can be continued twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from headrace.sqlite_file import transaction

MAX_TURNS = 4096
"""Responses of one conversation: each is a look-up, and a model's context ends far sooner."""

Items = list[msgspec.Raw]


class Bounds(NamedTuple):
    """The most that is kept."""

    responses: int
    bytes: int
    age_s: int


class Turn(NamedTuple):
    """A response to be stored."""

    id: str
    owner: bytes
    previous: int | None
    """The number of the response that it continues."""
    items: bytes
    """Its own input, a JSON list of items, each with an id."""
    body: bytes
    """The response object, as JSON."""


class Conversation(NamedTuple):
    """The input and output of a response and of those before it."""

    number: int
    """Of the response; to be released when nothing will continue it."""
    items: Items
    """Input and output, in order."""


class TooLongError(ValueError):
    """A conversation has more turns or bytes than are read."""


class _Output(msgspec.Struct):
    output: Items = []


class ResponseRows:
    """The tables of one database; every method is one transaction. Not for several threads.

    wall_s: Unix time.
    """

    def __init__(
        self, connection: sqlite3.Connection, bounds: Bounds, wall_s: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._bounds = bounds
        self._wall_s = wall_s
        self._held: Counter[int] = Counter()
        """How many conversations that are being continued hold a row."""
        with transaction(connection):
            self._remove_unneeded()  # what a server held that was killed

    def add(self, turn: Turn) -> bool:
        """Store a response and displace the oldest; False where it exceeds the bounds
        with the turns that are being continued."""
        size = len(turn.items) + len(turn.body)
        if size > self._bounds.bytes or self._bounds.responses == 0:
            return False
        with transaction(self._connection):
            self._connection.execute(
                "INSERT INTO responses (id, owner, previous, created_s, is_live, bytes, items, "
                "body) VALUES (?, ?, ?, ?, 1, ?, ?, ?)",
                (
                    turn.id,
                    turn.owner,
                    turn.previous,
                    int(self._wall_s()),
                    size,
                    turn.items,
                    turn.body,
                ),
            )
            self._displace()
        return self._find(turn.id, turn.owner, "number") is not None

    def body(self, id: str, owner: bytes) -> bytes | None:
        """The response object; None where the owner has none of this id."""
        row = self._find(id, owner, "body")
        return None if row is None else bytes(row[0])

    def hold(self, id: str, owner: bytes, most_bytes: int) -> Conversation | None:
        """A conversation that is to be continued, whose rows stay until `release`; None where the
        owner has no response of this id. Raises TooLongError."""
        row = self._find(id, owner, "number")
        if row is None:
            return None
        number = int(row[0])
        items = self._items(number, most_bytes, with_last_output=True)
        self._held[number] += 1
        return Conversation(number, items)

    def release(self, number: int) -> None:
        """Undo one `hold`."""
        self._held[number] -= 1
        if self._held[number] <= 0:
            del self._held[number]
            with transaction(self._connection):
                self._remove_hidden(number)

    def input_items(self, id: str, owner: bytes, most_bytes: int) -> Items | None:
        """All that a response was given: of the responses before it input and output, and its own
        input; None where the owner has none of this id. Raises TooLongError."""
        row = self._find(id, owner, "number")
        if row is None:
            return None
        return self._items(int(row[0]), most_bytes, with_last_output=False)

    def delete(self, id: str, owner: bytes) -> bool:
        """Whether the owner had a response of this id, which is not found from now on."""
        row = self._find(id, owner, "number")
        if row is None:
            return False
        with transaction(self._connection):
            self._hide(int(row[0]))
        return True

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _find(self, id: str, owner: bytes, column: str) -> tuple[Any, ...] | None:
        # A character that is half of a surrogate pair is in no id, and in no column either.
        row: tuple[Any, ...] | None = self._connection.execute(
            f"SELECT {column} FROM responses WHERE id = ? AND owner = ? AND is_live "
            "AND created_s >= ?",
            (id.encode("utf-8", "replace").decode(), owner, self._oldest_s),
        ).fetchone()
        return row

    @property
    def _oldest_s(self) -> int:
        return int(self._wall_s()) - self._bounds.age_s

    def _items(self, number: int, most_bytes: int, *, with_last_output: bool) -> Items:
        parts: list[Items] = []
        size = 0
        at: int | None = number
        while at is not None:
            row = self._connection.execute(
                "SELECT previous, items, body, bytes FROM responses WHERE number = ?", (at,)
            ).fetchone()
            previous, items, body, bytes_ = row
            size += bytes_
            if len(parts) >= 2 * MAX_TURNS or size > most_bytes:
                raise TooLongError(
                    f"the conversation has more than {MAX_TURNS} turns or {most_bytes} bytes"
                )
            if with_last_output or at != number:
                parts.append(msgspec.json.decode(body, type=_Output).output)
            parts.append(msgspec.json.decode(items, type=Items))
            at = previous
        return [item for part in reversed(parts) for item in part]

    def _displace(self) -> None:
        """Hide the oldest until the bounds are kept."""
        old = self._connection.execute(
            "SELECT number FROM responses WHERE is_live AND created_s < ?", (self._oldest_s,)
        ).fetchall()
        for (number,) in old:
            self._hide(number)
        while True:
            live, size = self._connection.execute(
                "SELECT (SELECT count(*) FROM responses WHERE is_live = 1), "
                "(SELECT total(bytes) FROM responses)"
            ).fetchone()
            if not live or (live <= self._bounds.responses and size <= self._bounds.bytes):
                return
            (oldest,) = self._connection.execute(
                "SELECT min(number) FROM responses WHERE is_live = 1"
            ).fetchone()
            self._hide(oldest)

    def _hide(self, number: int) -> None:
        self._connection.execute("UPDATE responses SET is_live = 0 WHERE number = ?", (number,))
        self._remove_hidden(number)

    def _remove_hidden(self, number: int | None) -> None:
        """Remove a hidden row that nothing needs, and then the one before it, and so on."""
        while number is not None and number not in self._held:
            row = self._connection.execute(
                "SELECT previous, is_live, EXISTS (SELECT 1 FROM responses AS later "
                "WHERE later.previous = responses.number) FROM responses WHERE number = ?",
                (number,),
            ).fetchone()
            if row is None or row[1] or row[2]:
                return
            self._connection.execute("DELETE FROM responses WHERE number = ?", (number,))
            number = row[0]

    def _remove_unneeded(self) -> None:
        hidden = self._connection.execute(
            "SELECT number FROM responses WHERE is_live = 0 ORDER BY number DESC"
        ).fetchall()
        for (number,) in hidden:
            self._remove_hidden(number)
