"""Lines on their way to a store: taken without waiting, written in batches by one thread.

A store never stops the gateway. While it refuses, lines wait in memory and are tried again; those
that do not fit are counted as lost, logged and reported in /health.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_BATCH = 500
# Limit of one transaction, and of what is under way to a server at once.
_BATCH_BYTES = 8 * 2**20
# How long lines are collected before they are written together.
_LINGER_S = 0.05
_RETRY_S = 1.0
_RETRY_MOST_S = 30.0
_CLEAN_EVERY_S = 60.0
# Rows per deletion, so that others wait for the store for about a millisecond.
_DELETED_AT_ONCE = 500
_S_PER_DAY = 86_400
_CLOSE_S = 10.0

# What an error of a store means: try again later; never write to it again; a line of this batch
# fits in no column and the others can be written.
Verdict = Literal["later", "damaged", "bad_line"]


class Batches(Protocol[T_contra]):
    """A store that the thread writes to. A `judge` classifies its errors."""

    def append(self, lines: Sequence[T_contra], /) -> None:
        """Write all lines or none."""

    def delete_before(self, at_ms: int, most: int) -> int:
        """Delete up to `most` of the oldest lines before a time; return how many were deleted."""

    def close(self) -> None:
        """Close the store."""


class Standing(NamedTuple):
    """The state of a writer."""

    written: int
    """Lines written since the start."""
    waiting: int
    """Lines that wait to be written."""
    lost: int
    """Lines lost since the start."""
    error: str
    """Why the last attempt to write failed; "" if it did not."""


class Bounds(NamedTuple):
    """The most that may wait in memory: lines, and their bytes."""

    lines: int
    bytes: int


class Waits(NamedTuple):
    """The delays of a writer."""

    linger_s: float = _LINGER_S
    """How long lines are collected."""
    retry_s: float = _RETRY_S
    """After a first failure; doubles up to most_s."""
    most_s: float = _RETRY_MOST_S


class BatchWriter(Generic[T]):
    """A writer of lines to a store from a separate thread.

    `kind` names what lost lines are missing from, as in "the ledger"; `name` is the store's in the
    log. Lines older than `retention_days` are deleted, a few at a time; None keeps them. `wall_s`
    is Unix time. `size_of` gives a line's bytes. `judge` classifies an error of the store; None
    means a fault of the gateway.
    """

    def __init__(
        self,
        store: Batches[T],
        *,
        kind: str,
        name: str,
        retention_days: int | None,
        wall_s: Callable[[], float],
        judge: Callable[[Exception], Verdict | None],
        id_of: Callable[[T], str],
        size_of: Callable[[T], int],
        bounds: Bounds,
        waits: Waits,
    ) -> None:
        self._store = store
        self._kind = kind
        self._name = name
        self.retention_days = retention_days
        self._wall_s = wall_s
        self._judge = judge
        self._id_of = id_of
        self._size_of = size_of
        self._bounds = bounds
        self._waits = waits
        self._waiting: deque[T] = deque()
        self._sizes: deque[int] = deque()
        self._some = threading.Event()
        self._closing = threading.Event()
        self._turned_away = 0  # used by the callers' thread only, as the next
        self._taken_bytes = 0
        self._left_bytes = 0  # used by the writer's thread, as all below
        self._given_up = 0
        self._written = 0
        self._error = ""
        self._damaged = False
        self._next_clean_s = 0.0
        self._thread = threading.Thread(target=self._run, name=kind, daemon=True)
        self._thread.start()

    def take(self, line: T) -> None:
        """Queue a line. Never waits and never raises; call from one thread only."""
        size = self._size_of(line)
        full = len(self._waiting) >= self._bounds.lines or (
            self.waiting_bytes + size > self._bounds.bytes
        )
        if full or self._closing.is_set():
            if self._turned_away == 0:
                logger.error(
                    "%s: %d entries wait to be written and no more fit in memory; requests are "
                    "answered, but missing from %s (/health counts them)",
                    self._name,
                    len(self._waiting),
                    self._kind,
                )
            self._turned_away += 1
            return
        self._taken_bytes += size
        self._sizes.append(size)
        self._waiting.append(line)
        if not self._some.is_set():
            self._some.set()

    @property
    def standing(self) -> Standing:
        """The current state; from any thread."""
        lost = self._turned_away + self._given_up
        return Standing(self._written, len(self._waiting), lost, self._error)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait in memory; from any thread."""
        return self._taken_bytes - self._left_bytes

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write what waits, and end. Lines that are not written in time are lost."""
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
                error or "the queue was full",
            )

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._some.wait(_CLEAN_EVERY_S)
                self._closing.wait(self._waits.linger_s)
                self._some.clear()
                self._write_all()
                self._clean()
            self._write_all()
        finally:
            self._closing.set()
            self._given_up += len(self._waiting)
            self._have_left(len(self._waiting))
            try:
                self._store.close()
            except Exception as error:
                if self._judge(error) is None:
                    raise
                logger.error("%s: it was not closed cleanly: %s", self._name, error)

    def _write_all(self) -> None:
        """Write until nothing waits. While closing, a batch is tried once."""
        wait_s = self._waits.retry_s
        while self._waiting:
            batch = self._batch()
            if self._damaged:
                self._give_up(batch, "the store is damaged")
                continue
            try:
                self._write(batch)
            except Exception as error:
                verdict = self._judge(error)
                if verdict is None:
                    raise
                self._failed(error, verdict)
                if not self._damaged and self._closing.wait(wait_s):
                    return
                wait_s = min(self._waits.most_s, 2 * wait_s)
                continue
            if self._error:
                logger.info("%s: entries can be written again", self._name)
                self._error = ""
            wait_s = self._waits.retry_s

    def _batch(self) -> list[T]:
        """The next batch; not by iteration, which a new line would interrupt."""
        batch: list[T] = []
        size = 0
        for at in range(min(_BATCH, len(self._waiting))):
            size += self._sizes[at]
            if batch and size > _BATCH_BYTES:
                break
            batch.append(self._waiting[at])
        return batch

    def _write(self, batch: Sequence[T]) -> None:
        """Write a batch whole, or line by line if a value of one fits in no column."""
        try:
            self._store.append(batch)
        except Exception as error:
            if self._judge(error) != "bad_line":
                raise
            for line in batch:
                self._write_one(line)
            return
        self._have_left(len(batch))
        self._written += len(batch)

    def _write_one(self, line: T) -> None:
        try:
            self._store.append([line])
        except Exception as error:
            if self._judge(error) != "bad_line":
                raise
            self._give_up([line], str(error))
        else:
            self._have_left(1)
            self._written += 1

    def _failed(self, error: Exception, verdict: Verdict) -> None:
        if not self._error:
            logger.error(
                "%s: entries cannot be written; up to %d wait in memory: %s",
                self._name,
                self._bounds.lines,
                error,
            )
        self._error = str(error)
        self._damaged = self._damaged or verdict == "damaged"

    def _give_up(self, lines: Sequence[T], why: str) -> None:
        if self._given_up == 0:
            missing = self._id_of(lines[0])
            logger.error("%s: %s is missing from %s: %s", self._name, missing, self._kind, why)
        self._given_up += len(lines)
        self._have_left(len(lines))

    def _have_left(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
            self._left_bytes += self._sizes.popleft()

    def _clean(self) -> None:
        """Delete old lines, between batches and only while the store works."""
        while self.retention_days is not None and not (self._waiting or self._error):
            now_s = self._wall_s()
            if now_s < self._next_clean_s:
                return
            before_ms = round((now_s - self.retention_days * _S_PER_DAY) * 1000)
            deleted = 0
            try:
                deleted = self._store.delete_before(before_ms, _DELETED_AT_ONCE)
            except Exception as error:
                if self._judge(error) is None:
                    raise
                logger.warning("%s: old entries were not deleted: %s", self._name, error)
            if deleted < _DELETED_AT_ONCE:
                self._next_clean_s = now_s + _CLEAN_EVERY_S
            elif self._closing.wait(self._waits.linger_s):
                return
