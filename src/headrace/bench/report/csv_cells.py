"""Lines of CSV that are safe to open: of runs and of providers.

Text that a spreadsheet would take for a formula gets an apostrophe before it: error messages come
from servers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

Field = str | int | float | bool | None

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_line(fields: Iterable[Field], number: str = ".6f") -> str:
    """With its line feed. number: how floats are formatted; truth is 1 or 0, None is empty."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow([_written(one, number) for one in fields])
    return buffer.getvalue()


def _written(field: Field, number: str) -> Field:
    if isinstance(field, bool):
        return int(field)
    if isinstance(field, float):
        return format(field, number)
    if isinstance(field, str) and field.startswith(_FORMULA):
        return f"'{field}"
    return field
