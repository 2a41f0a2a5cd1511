"""One process at a time measures into a database: others would send into its figures."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ConfigError


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Holds `database`.lock, which goes with the process whatever ends it.

    A file of its own, because closing any other handle of a database drops SQLite's own locks.
    Raises ConfigError where another process holds it, or the folder cannot be written.
    """
    path = database.with_name(database.name + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"--db {database}: {error.strerror}; name another file") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ConfigError(
            f"--db {database}: another process measures into it; wait until it ends, name "
            "another file, or only report with --report"
        ) from error
    try:
        yield
    finally:
        # Removed while it is held: whoever has opened it already finds it locked.
        path.unlink(missing_ok=True)
        os.close(handle)
