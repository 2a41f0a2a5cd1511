"""A file as read-only bytes in memory, without reading it.

The array keeps the mapping alive: pages stay valid as long as any view of it is referenced. A
file that is shortened by someone else while mapped ends the process on access (as with any mmap);
replacing it by rename, as the writers here do, is safe.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError


class MappedFile(mmap.mmap):
    """A mapping of a file, with the descriptor by which the file can be read as well."""

    descriptor: int

    def __new__(cls, descriptor: int) -> Self:
        """Map the whole file; the descriptor is this mapping's from then on."""
        mapping = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        mapping.descriptor = descriptor
        return mapping

    def __del__(self) -> None:
        os.close(self.descriptor)


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """uint8[file size], read-only, backed by the page cache.

    Raises CheckpointError when the file is missing, is no regular file, is empty or cannot be read.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file")
    if not path.is_file():
        raise CheckpointError(f"{path}: not a regular file")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == 0:
                raise CheckpointError(f"{path}: the file is empty (0 bytes)")
            mapping = MappedFile(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    return np.frombuffer(mapping, np.uint8)


def file_of(view: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """The descriptor of the mapped file that a contiguous view is part of, open as long as the view
    is there, and the byte the view begins at; None for other arrays."""
    found = _mapping_of(view)
    return None if found is None else (found[0].descriptor, found[1])


def release(view: npt.NDArray[np.uint8]) -> None:
    """Free the memory of a part of a mapped file, which is read again where it is used again;
    nothing for other arrays.

    Pages of a mapping that were read count as this process's memory until then.
    """
    found = _mapping_of(view)
    if found is None:
        return
    mapping, start = found
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, first, start + view.nbytes - first)


def _mapping_of(view: npt.NDArray[np.uint8]) -> tuple[MappedFile, int] | None:
    """The mapping that a contiguous view is part of, and the byte it begins at."""
    whole, owner = view, view.base
    while isinstance(owner, np.ndarray):
        whole, owner = owner, owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, MappedFile) or not view.nbytes or not view.flags.c_contiguous:
        return None
    return owner, view.ctypes.data - whole.ctypes.data
