"""Writing a file so that its name shows either the old content or all of the new, never a part."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write to; it takes the name `path` when the block ends without an error.

    Until then it is a hidden file in the same folder (a rename is atomic only within a file
    system), and it is removed when the block raises. Data reaches the disk before the rename.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
