"""Small files of a model folder as bytes, with errors that name the file.

Weights are mapped (`mapped`); what is read whole comes through here: never from a pipe or a device,
where reading waits for somebody who never writes or ends in no memory, and never more than a limit,
whatever size the file claims or grows to meanwhile.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from headrace.errors import CheckpointError


def is_named(path: Path) -> bool:
    """Whether a file is there or was meant to be: a link whose target is gone counts, and a pipe.

    Whoever passed over such a thing would run the model without what the file says.
    """
    return os.path.lexists(path)


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of `path`; raises CheckpointError when it is missing, not a regular file, cannot be
    read or is larger than `max_bytes`.
    """
    try:
        # A pipe is not waited for, and what was opened is what is checked and read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read_whole(descriptor, path, max_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a zero byte or half of a surrogate pair in its name
        raise CheckpointError(f"{str(path)!r} is not a path: {error}") from error


def _read_whole(descriptor: int, path: Path, max_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path}: not a regular file")
    if status.st_size > max_bytes:
        raise CheckpointError(f"{path}: {status.st_size} bytes; the limit is {max_bytes}")
    pieces: list[bytes] = []
    total_bytes = 0
    # Files of /proc have no size, and a file may grow while it is read.
    while piece := os.read(descriptor, max(status.st_size + 1 - total_bytes, 1 << 16)):
        pieces.append(piece)
        total_bytes += len(piece)
        if total_bytes > max_bytes:
            raise CheckpointError(f"{path}: more than {max_bytes} bytes, which is the limit")
    return b"".join(pieces)
