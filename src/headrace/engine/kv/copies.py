"""Copies of blocks, in the order in which they are to be made."""

from __future__ import annotations

from collections.abc import Sequence

Copy = tuple[int, int]
"""A block and the one that it is copied to."""


def apart(copies: Sequence[Copy]) -> list[list[Copy]]:
    """The copies in runs in which no block is written that another copy reads or writes, so that
    the order within a run is of no account.
    """
    runs: list[list[Copy]] = []
    read: set[int] = set()
    written: set[int] = set()
    for source, target in copies:
        if not runs or source in written or target in written or target in read:
            runs.append([])
            read, written = set(), set()
        runs[-1].append((source, target))
        read.add(source)
        written.add(target)
    return runs
