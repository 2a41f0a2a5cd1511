"""Memory of what operations return: aligned to lines of the cache, and used again.

What the system's allocator gives back after one operation comes back for the next one as pages that
are cleared first: 1.5 of 5 ms for 512 rows of 6,144 values.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

LINE_BYTES = 64
LEAST_BYTES = 128 << 10
"""Smaller results come from the allocator, which keeps that much (glibc's M_TRIM_THRESHOLD)."""
MOST_BYTES = 128 << 20
"""Of all that is kept, held or not: the results of a step of 512 rows of an 8B model take about 100
MiB."""
_UNHELD = 3
"""References to an array that the list alone holds, as seen in a loop over it: the list's, the
loop's, and that of the call that counts them."""


class Results:
    """Arrays in memory that is used again once nobody holds them.

    A block that is kept is in use as long as an array in it, or a view of one, is referenced.
    Threads may ask at the same time.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    @property
    def kept_bytes(self) -> int:
        """Of all blocks, in use or not."""
        return sum(block.nbytes for block in self._blocks)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> npt.NDArray[Any]:
        """An array of that shape, whose values are anything."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._unheld(size + LINE_BYTES)
        skipped = -block.__array_interface__["data"][0] % LINE_BYTES
        array: npt.NDArray[Any] = block[skipped : skipped + size].view(dtype).reshape(shape)
        return array

    def _unheld(self, size: int) -> npt.NDArray[np.uint8]:
        """The smallest block of `size` bytes or more that is not in use, or a new one.

        A new one is kept if there is room for it, for which those that are not in use make way.
        """
        unheld = [block for block in self._blocks if sys.getrefcount(block) <= _UNHELD]
        for block in sorted(unheld, key=len):
            if block.nbytes >= size:
                return block
        made = np.empty(size, np.uint8)
        if self.kept_bytes + size > self._most:
            dropped = set(map(id, unheld))
            self._blocks = [block for block in self._blocks if id(block) not in dropped]
        if self.kept_bytes + size <= self._most:
            self._blocks.append(made)
        return made
