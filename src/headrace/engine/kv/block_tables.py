"""The block tables of running requests as arrays, kept over steps.

There is an array for each group of layers, with a row per slot, of which only what has changed is
written; it grows with the slots and lengths used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.engine.request import Request
from headrace.models.layer_cache import CacheGroup

Table = npt.NDArray[np.int32]
"""int32[R, B]"""


class BlockTables:
    """Arrays int32[slots, blocks, tables] of each group."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self._arrays = [np.zeros((0, 0, group.num_tables), np.int32) for group in groups]

    def of(self, requests: Sequence[Request]) -> tuple[Table, ...]:
        """The tables of these requests, in the order of the groups and of their tables."""
        slots = [request.slot for request in requests]
        found: list[Table] = []
        for number, array in enumerate(self._arrays):
            longest = self._sync(number, requests)
            rows = self._arrays[number][slots, :longest]
            if array.shape[2] == 1:
                found.append(rows[:, :, 0])
            else:
                found += list(np.ascontiguousarray(rows.transpose(2, 0, 1)))
        return tuple(found)

    def _sync(self, number: int, requests: Sequence[Request]) -> int:
        """Write what has changed in the tables of one group; the length of the longest."""
        longest = 0
        for request in requests:
            table = request.tables[number]
            length = len(table.blocks)
            longest = max(longest, length)
            synced = table.num_synced
            if synced == length:
                continue
            self._cover(number, request.slot, length)
            row = self._arrays[number][request.slot]
            if synced == 0:
                row[:] = 0  # of whoever had the slot before
            row[synced:length] = table.blocks[synced:]
            table.num_synced = length
        return longest

    def _cover(self, number: int, slot: int, length: int) -> None:
        """Make an array hold `length` blocks in row `slot`; it grows to powers of two."""
        array = self._arrays[number]
        rows, columns, width = array.shape
        if slot < rows and length <= columns:
            return
        most = max(rows, 1 << slot.bit_length()), max(columns, 1 << (length - 1).bit_length())
        grown = np.zeros((*most, width), np.int32)
        grown[:rows, :columns] = array
        self._arrays[number] = grown
