"""Arrays between a device and this machine's memory, as few copies as can be, through pinned pages.

A copy from pinned memory runs beside what the host does next; one from pageable memory has the host
wait for it. On a processor the tensors are in this machine's memory already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class HostCopy:
    """Tensors [N, width_i] of values of 4 bytes on their way to this machine, by one copy."""

    def __init__(self, arrays: Sequence[torch.Tensor]) -> None:
        self._arrays = arrays
        self._event: torch.cuda.Event | None = None
        if arrays[0].device.type == "cpu":
            return
        joined = joined_rows(arrays)
        self._landed = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
        self._landed.copy_(joined, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(joined.device))

    def read(self) -> list[npt.NDArray[Any]]:
        """In NumPy, of their own types, once they have come."""
        if self._event is None:
            return [array.contiguous().numpy() for array in self._arrays]
        self._event.synchronize()
        return parted_rows(self._landed.numpy(), self._arrays)


def rows_on_host(arrays: Sequence[torch.Tensor]) -> list[npt.NDArray[Any]]:
    """Tensors [N, width_i] of values of 4 bytes in NumPy, of their own types; by one copy."""
    return HostCopy(arrays).read()


def joined_rows(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows side by side, whatever their types, as int32[N, sum of widths]."""
    return torch.cat([array.contiguous().view(torch.int32) for array in arrays], dim=1)


def parted_rows(
    joined: npt.NDArray[np.int32], arrays: Sequence[torch.Tensor]
) -> list[npt.NDArray[Any]]:
    """What `joined_rows` joined, in the types of `arrays`."""
    parts, start = [], 0
    for array in arrays:
        end = start + array.shape[1]
        kind = np.float32 if array.dtype == torch.float32 else np.int32
        parts.append(np.ascontiguousarray(joined[:, start:end]).view(kind))
        start = end
    return parts


def staged(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """The values on the device; a copy, which need not have ended when this returns."""
    array = np.ascontiguousarray(values)
    if device.type == "cpu":
        return torch.from_numpy(array.copy())
    pinned = torch.empty(array.shape, dtype=_type_of(array), pin_memory=True)
    np.copyto(pinned.numpy(), array)
    return pinned.to(device, non_blocking=True)


def _type_of(array: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype
