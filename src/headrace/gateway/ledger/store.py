"""Entries on their way to the disk: taken without waiting, written in batches by one thread.

The ledger never stops the gateway. While the disk refuses, entries wait in memory and are tried
again; what there is no room for is counted as lost, logged and told in /health.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.gateway.ledger.file import LedgerFile, Writing
from headrace.gateway.ledger.schema import is_damage
from headrace.gateway.serving.entry import Entry

logger = logging.getLogger(__name__)

# At a few kB each, what a disk that hangs may cost of memory: some 50 MB.
MOST_WAITING = 20_000
_BATCH = 500
# How long entries gather before they are written together.
_LINGER_S = 0.05
_RETRY_S = 1.0
_RETRY_MOST_S = 30.0
_CLEAN_EVERY_S = 60.0
# Rows of one deletion: others wait for the file for about a millisecond.
_DELETED_AT_ONCE = 500
_S_PER_DAY = 86_400
_CLOSE_S = 10.0
# What a value that no column takes raises; of its batch the rest can be written.
_BAD_ROWS = (ArithmeticError, TypeError, ValueError, sqlite3.DataError, sqlite3.IntegrityError,
             sqlite3.InterfaceError, sqlite3.ProgrammingError)  # fmt: skip


class Standing(NamedTuple):
    """written, lost: entries since the start. waiting: not yet written. error: why the last try to
    write failed, "" if it did not."""

    written: int
    waiting: int
    lost: int
    error: str


class LedgerStore:
    """Made by `open`. retention_days: older requests are deleted, a few at a time; None: never.

    wall_s: Unix time.
    """

    def __init__(
        self,
        file: Writing,
        *,
        name: str,
        retention_days: int | None,
        wall_s: Callable[[], float],
        most_waiting: int = MOST_WAITING,
        linger_s: float = _LINGER_S,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._file = file
        self._name = name
        self.retention_days = retention_days
        self._wall_s = wall_s
        self._most_waiting = most_waiting
        self._linger_s = linger_s
        self._retry_s = retry_s
        self._waiting: deque[Entry] = deque()
        self._some = threading.Event()
        self._closing = threading.Event()
        self._turned_away = 0  # of the callers' thread alone
        self._given_up = 0  # of the writer's, as all below
        self._written = 0
        self._error = ""
        self._damaged = False
        self._next_clean_s = 0.0
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls, path: Path, *, retention_days: int | None, wall_s: Callable[[], float]
    ) -> LedgerStore:
        """Open the file, or make it where there is none.

        Raises LedgerError for one that is damaged, newer or not a ledger; it is left as it is.
        """
        file = LedgerFile(path)
        return cls(file, name=str(path), retention_days=retention_days, wall_s=wall_s)

    def take(self, entry: Entry) -> None:
        """Keep it. Never waits and never raises; from one thread only."""
        if len(self._waiting) >= self._most_waiting or self._closing.is_set():
            if self._turned_away == 0:
                logger.error(
                    "%s: %d entries wait to be written and there is room for no more; requests are "
                    "answered, and missing in the ledger (/health counts them)",
                    self._name,
                    len(self._waiting),
                )
            self._turned_away += 1
            return
        self._waiting.append(entry)
        if not self._some.is_set():
            self._some.set()

    @property
    def standing(self) -> Standing:
        """How it is now; from any thread."""
        lost = self._turned_away + self._given_up
        return Standing(self._written, len(self._waiting), lost, self._error)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write what waits, and end. What a disk does not take within the time is lost."""
        self._closing.set()
        self._some.set()
        self._thread.join(timeout_s)
        written, waiting, lost, error = self.standing
        if waiting or lost:
            logger.error(
                "%s: %d entries were written and %d lost: %s",
                self._name,
                written,
                waiting + lost,
                error or "there was no room for them",
            )

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._some.wait(_CLEAN_EVERY_S)
                self._closing.wait(self._linger_s)
                self._some.clear()
                self._write_all()
                self._clean()
            self._write_all()
        finally:
            self._closing.set()
            self._given_up += len(self._waiting)
            self._waiting.clear()
            try:
                self._file.close()
            except (sqlite3.Error, OSError) as error:
                logger.error("%s: it was not closed well: %s", self._name, error)

    def _write_all(self) -> None:
        """Until nothing waits. While it closes a batch is tried once."""
        wait_s = self._retry_s
        while self._waiting:
            # Not by iteration, which an entry that comes meanwhile would end.
            batch = [self._waiting[at] for at in range(min(_BATCH, len(self._waiting)))]
            if self._damaged:
                self._give_up(batch, "the file is damaged")
                continue
            try:
                self._write(batch)
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
                if not self._damaged and self._closing.wait(wait_s):
                    return
                wait_s = min(_RETRY_MOST_S, 2 * wait_s)
                continue
            if self._error:
                logger.info("%s: entries are written again", self._name)
                self._error = ""
            wait_s = self._retry_s

    def _write(self, batch: Sequence[Entry]) -> None:
        """Whole, or one by one where a value of one of them fits in no column."""
        try:
            self._file.append(batch)
        except _BAD_ROWS:
            for one in batch:
                try:
                    self._file.append([one])
                except _BAD_ROWS as error:
                    self._give_up([one], str(error))
                else:
                    self._have_left(1)
                    self._written += 1
            return
        self._have_left(len(batch))
        self._written += len(batch)

    def _failed(self, error: Exception) -> None:
        if not self._error:
            logger.error(
                "%s: entries cannot be written, up to %d wait in memory: %s",
                self._name,
                self._most_waiting,
                error,
            )
        self._error = str(error)
        self._damaged = self._damaged or is_damage(error)

    def _give_up(self, entries: Sequence[Entry], why: str) -> None:
        if self._given_up == 0:
            logger.error("%s: %s is missing in the ledger: %s", self._name, entries[0].id, why)
        self._given_up += len(entries)
        self._have_left(len(entries))

    def _have_left(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()

    def _clean(self) -> None:
        """Delete what is old, between batches and only while the disk takes them."""
        while self.retention_days is not None and not (self._waiting or self._error):
            now_s = self._wall_s()
            if now_s < self._next_clean_s:
                return
            before_ms = round((now_s - self.retention_days * _S_PER_DAY) * 1000)
            try:
                deleted = self._file.delete_before(before_ms, _DELETED_AT_ONCE)
            except (sqlite3.Error, OSError) as error:
                logger.warning("%s: old entries were not deleted: %s", self._name, error)
                self._next_clean_s = now_s + _CLEAN_EVERY_S
            if deleted < _DELETED_AT_ONCE:
                self._next_clean_s = now_s + _CLEAN_EVERY_S
            elif self._closing.wait(self._linger_s):
                return
