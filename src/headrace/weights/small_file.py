"""Small files of a model folder as bytes, with errors that name the file.

Weights are mapped (`mapped`); what is read whole comes through here, bounded, and never from a pipe
or a device, where reading waits for somebody who never writes.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import CheckpointError


def is_named(path: Path) -> bool:
    """Whether a file is there or was meant to be: a link whose target is gone counts.

    Whoever passed over such a link would run the model without what the file says.
    """
    return path.is_file() or path.is_symlink()


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of `path`; raises CheckpointError when it is missing, no regular file, cannot be
    read or is larger than `max_bytes`.
    """
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(f"{path}: not a regular file")
        n_bytes = path.stat().st_size
        if n_bytes > max_bytes:
            raise CheckpointError(f"{path}: {n_bytes} bytes; the limit is {max_bytes}")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
