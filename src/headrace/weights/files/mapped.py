"""A file as read-only bytes in memory, without reading it.

The array keeps the mapping alive: pages stay valid as long as any view of it is referenced. A
file that is shortened by someone else while mapped ends the process on access (as with any mmap);
replacing it by rename, as the writers here do, is safe.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError


def map_file(path: Path) -> npt.NDArray[np.uint8]:
    """uint8[file size], read-only, backed by the page cache.

    Raises CheckpointError when the file is missing, is no regular file, is empty or cannot be read.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file")
    if not path.is_file():
        raise CheckpointError(f"{path}: not a regular file")
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise CheckpointError(f"{path}: the file is empty (0 bytes)")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    return np.frombuffer(mapping, np.uint8)


def release(view: npt.NDArray[np.uint8]) -> None:
    """Free the memory of a part of a mapped file, which is read again where it is used again;
    nothing for other arrays.

    Pages of a mapping that were read count as this process's memory until then.
    """
    whole, owner = view, view.base
    while isinstance(owner, np.ndarray):
        whole, owner = owner, owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not view.nbytes or not view.flags.c_contiguous:
        return
    start = view.ctypes.data - whole.ctypes.data
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    owner.madvise(mmap.MADV_DONTNEED, first, start + view.nbytes - first)
