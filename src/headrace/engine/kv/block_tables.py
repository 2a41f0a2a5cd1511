"""The block tables of running requests as arrays, kept over steps.

Of each group of layers there is an array with a row per slot, and the rows of the last batch. Of
both only what has changed is written, so that a step which decodes what the one before decoded
costs what changed, however many tables there are and however long they are. Arrays handed out are
those of the next step too: they are right until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.engine.request import GroupTable, Request
from headrace.models.layer_cache import CacheGroup

Table = npt.NDArray[np.int32]
"""int32[R, B]"""

COLUMNS_AHEAD = 8
"""A batch has columns for so many blocks more, which are 0, so that it is seldom laid out again."""


class BlockTables:
    """The tables of all groups."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self._groups = [_TableArrays(number, group) for number, group in enumerate(groups)]

    def of(self, requests: Sequence[Request]) -> tuple[Table, ...]:
        """The tables of these requests, in the order of the groups and of their tables."""
        slots = [request.slot for request in requests]
        found: list[Table] = []
        for group in self._groups:
            found += group.of(requests, slots)
        return tuple(found)


class _TableArrays:
    """The arrays int32[tables, rows, blocks] of one group, filled from requests' tables."""

    def __init__(self, number: int, group: CacheGroup) -> None:
        self._number = number
        self._by_slot = np.zeros((group.num_tables, 0, 0), np.int32)
        self._batch = np.zeros((group.num_tables, 0, 0), np.int32)
        self._tables: list[Table] = []
        """Of the batch, one by one."""
        self._slots: list[int] = []
        """Of the rows of the batch."""

    def of(self, requests: Sequence[Request], slots: list[int]) -> list[Table]:
        """The tables of these requests, whose slots these are."""
        number, longest = self._number, 0
        changed: list[tuple[int, int, int]] = []
        for row, request in enumerate(requests):
            table = request.tables[number]
            length = len(table.blocks)
            if length > longest:
                longest = length
            if table.num_synced != length or table.num_cleared != table.num_dropped:
                changed.append((row, self._sync(table, request.slot), length))
        if slots != self._slots or longest > self._batch.shape[2]:
            self._lay_out(requests, slots, longest)
        else:
            for row, first, length in changed:
                # A row that begins at 0 is another request's: what is behind its end was, too.
                last = length if first else self._batch.shape[2]
                self._batch[:, row, first:last] = self._by_slot[:, slots[row], first:last]
        return self._tables

    def _sync(self, table: GroupTable, slot: int) -> int:
        """Write what has changed in a table; the first of these columns."""
        length, dropped = len(table.blocks), table.num_dropped
        self._cover(slot, length)
        rows = self._by_slot[:, slot]
        first = min(table.num_synced, table.num_cleared if table.num_cleared < dropped else length)
        if table.num_synced == 0:
            rows[:] = 0  # of whoever had the slot before
        else:
            rows[:, table.num_cleared : dropped] = 0
        start = max(table.num_synced, dropped)
        if start < length:
            rows[:, start:length] = np.array(table.blocks[start:], np.int32).T
        table.num_synced, table.num_cleared = length, dropped
        return first

    def _lay_out(self, requests: Sequence[Request], slots: list[int], longest: int) -> None:
        """Make a batch of the rows of other slots, or of longer ones."""
        first = min((request.tables[self._number].num_dropped for request in requests), default=0)
        columns = min(longest + COLUMNS_AHEAD, self._by_slot.shape[2])
        self._batch = np.zeros((len(self._by_slot), len(slots), columns), np.int32)
        self._batch[:, :, first:longest] = self._by_slot[:, slots, first:longest]
        self._tables = list(self._batch)
        self._slots = slots

    def _cover(self, slot: int, length: int) -> None:
        """Make the array hold `length` blocks in row `slot`; it grows to powers of two."""
        tables, rows, columns = self._by_slot.shape
        if slot < rows and length <= columns:
            return
        most = max(rows, 1 << slot.bit_length()), max(columns, 1 << (length - 1).bit_length())
        grown = np.zeros((tables, *most), np.int32)
        grown[:, :rows, :columns] = self._by_slot
        self._by_slot = grown
