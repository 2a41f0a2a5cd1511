"""Text files that people name in settings: regular files of a limited size, UTF-8.

A device, a pipe or a folder is refused before it is read: some have no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from headrace.errors import ConfigError


def read_text_file(path: Path, setting: str, max_bytes: int) -> str:
    """The text of `path`.

    setting: the flag that names the file. Raises ConfigError naming both for a file that cannot be
    read, is not a regular file, has more than `max_bytes`, or is not UTF-8.
    """
    where = f"{setting} {path}"
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{where}: not a regular file; give the path of one")
            # Sizes are not asked for: files of /proc say 0.
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a null character
        raise ConfigError(f"{where!r}: cannot be read: {error}") from error
    if len(content) > max_bytes:
        raise ConfigError(f"{where}: has more than {max_bytes} bytes, which is the limit")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8 at byte {error.start}: {error.reason}") from error


def _open_at_once(path: str, flags: int) -> int:
    """Without O_NONBLOCK, opening a pipe would wait for somebody to write to it."""
    return os.open(path, flags | os.O_NONBLOCK)
