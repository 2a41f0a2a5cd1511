"""Where a backend computes: its memory, its errors, and the way of arrays to NumPy and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.ops.operands import Array

SLICE_VALUES = 1 << 26
"""Decoded values of a weight that a backend on a device holds at a time, where it decodes before it
multiplies: 256 MiB as float32."""
ATTENTION_CUT = 512
"""Positions whose attention is summed by itself on a device. Part of the arithmetic: a request of
32,768 is 64 programs for each head of K and V then."""
ATTENTION_BYTES = 256 << 20
"""Such sums that programs leave for others to join, at most."""


class DeviceMemory(NamedTuple):
    """Bytes of the memory of a device."""

    free_bytes: int
    """Of the device, whoever holds the rest."""
    total_bytes: int


Fault = Literal["memory", "lost"]
"""memory: there was too little of it for an operation, which may succeed with fewer rows or later.
lost: the device computes nothing any more in this process."""


class DeviceOps:
    """The part of a backend that knows where it computes; here with NumPy arrays, and at once."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether operations return before they are computed, which they are in their order: then
        there is `begin_draw`, and a batch may be a FollowingBatch."""
        return False

    def memory(self) -> DeviceMemory | None:
        """Of the device that computes, now; None where it is this machine's own memory."""
        return None

    def fault_of(self, error: Exception) -> Fault | None:
        """What an error that an operation raised says of where it computes; None: nothing, the
        fault is of what was asked."""
        return "memory" if isinstance(error, MemoryError) else None

    def wait_for(self, x: Array) -> None:
        """Return once `x` is computed; raises what an operation on its way raises late."""

    def release_memory(self) -> None:
        """Give back memory that is kept for the next step and holds nothing now."""

    def host(self, x: Array) -> npt.NDArray[Any]:
        """The values of an array in NumPy, of its own type; perhaps not a copy. For NumPy arrays
        as it stands."""
        return np.asarray(x)

    def host_rows(self, arrays: Sequence[Array]) -> list[npt.NDArray[Any]]:
        """`host` of several arrays [N, width_i] of values of 4 bytes; from a device by one copy."""
        return [self.host(array) for array in arrays]

    def from_host(self, values: npt.NDArray[np.float32]) -> Array:
        """The backend's array of f32[N, width], which nobody else writes. For NumPy arrays as it
        stands."""
        return values
