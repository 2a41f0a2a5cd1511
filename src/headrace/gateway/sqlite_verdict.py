"""What an error of SQLite means for a writer of lines."""

from __future__ import annotations

import sqlite3

from headrace.gateway.batch_writer import Verdict
from headrace.sqlite_file import is_damage

# Raised for a value that fits in no column.
_BAD_ROWS = (ArithmeticError, TypeError, ValueError, sqlite3.DataError, sqlite3.IntegrityError,
             sqlite3.InterfaceError, sqlite3.ProgrammingError)  # fmt: skip


def judged(error: Exception) -> Verdict | None:
    """What an error means for a writer of lines; None if it is not one of SQLite's."""
    if isinstance(error, _BAD_ROWS):
        return "bad_line"
    if isinstance(error, sqlite3.Error | OSError):
        return "damaged" if is_damage(error) else "later"
    return None
