"""Entries on their way to the ledger's file: taken without waiting, written by one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.gateway.batch_writer import BatchWriter, Bounds, Standing, Waits
from headrace.gateway.ledger.file import LedgerFile, Writing
from headrace.gateway.serving.entry import Entry
from headrace.gateway.sqlite_verdict import judged

__all__ = ["MOST_WAITING", "LedgerStore", "Standing"]

# At a few kB each, what a disk that hangs may cost of memory: some 50 MB.
MOST_WAITING = 20_000
# Entries are not weighed: nothing in one of them is large.
_ANY_BYTES = 2**62


class LedgerStore(BatchWriter[Entry]):
    """The ledger in a file, written by one thread. Made by `open`.

    retention_days: older requests are deleted, a few at a time; None: never. wall_s: Unix time.
    """

    def __init__(
        self,
        file: Writing,
        *,
        name: str,
        retention_days: int | None,
        wall_s: Callable[[], float],
        most_waiting: int = MOST_WAITING,
        linger_s: float = Waits().linger_s,
        retry_s: float = Waits().retry_s,
    ) -> None:
        super().__init__(
            file,
            kind="the ledger",
            name=name,
            retention_days=retention_days,
            wall_s=wall_s,
            judge=judged,
            id_of=lambda entry: entry.id,
            size_of=lambda entry: 0,
            bounds=Bounds(most_waiting, _ANY_BYTES),
            waits=Waits(linger_s, retry_s),
        )

    @classmethod
    def open(
        cls, path: Path, *, retention_days: int | None, wall_s: Callable[[], float]
    ) -> LedgerStore:
        """Open the file, or make it where there is none.

        Raises LedgerError for one that is damaged, newer or not a ledger; it is left as it is.
        """
        file = LedgerFile(path)
        return cls(file, name=str(path), retention_days=retention_days, wall_s=wall_s)
