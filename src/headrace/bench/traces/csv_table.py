"""Rows of CSV files with a header, and numbers in them, so that errors say where they are.

Only the columns that are asked for need to be there, in any order. Times are read as decimals: a
float of seconds has not the digits for nanoseconds of a long trace.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from headrace.bench.prompts.lengths import MAX_TOKENS
from headrace.bench.prompts.read_json import unreadable
from headrace.bench.traces.row import NS_PER_S
from headrace.errors import ConfigError, shown

# As programs print floats, too: 5.8926549999999995, 1e-05.
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?")


class Cell(NamedTuple):
    """A value of a row, and where it stands: `file:line: column`."""

    where: str
    text: str

    def error(self, remedy: str) -> ConfigError:
        """What is wrong with it, for a caller to raise."""
        return ConfigError(f"{self.where} {shown(self.text)}: {remedy}")

    def tokens(self) -> int:
        """A count of tokens from 0 to MAX_TOKENS; `12.0` counts as 12."""
        found = re.fullmatch(r"([0-9]{1,12})(?:\.0*)?", self.text)
        if not found or int(found[1]) > MAX_TOKENS:
            raise self.error(f"must be a whole number from 0 to {MAX_TOKENS}; correct the row")
        return int(found[1])

    def seconds_ns(self) -> int:
        """Seconds as the nearest whole nanoseconds."""
        if not _SECONDS.fullmatch(self.text):
            raise self.error("must be seconds like 12.5, 0 or more; correct the row")
        return int((Decimal(self.text) * NS_PER_S).to_integral_value())


def header_of(first_line: str) -> tuple[str, ...]:
    """Names of columns in a file's first line."""
    return tuple(name.strip() for name in first_line.removeprefix("\ufeff").split(","))


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    """The cells of these columns, row by row; empty lines are passed over.

    Raises ConfigError for a file that cannot be read, a column that is not there, and a row with
    too few cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            names = [name.strip() for name in next(rows, [])]
            for column in columns:
                if column not in names:
                    raise ConfigError(
                        f"{path}:1: has no column {column!r} but {', '.join(names) or 'none'}; add "
                        "the header of its format"
                    )
            places = [(names.index(column), column) for column in columns]
            for row in rows:
                if row:
                    yield _cells(row, places, f"{path}:{rows.line_num}")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    except csv.Error as error:
        raise ConfigError(
            f"{path}:{rows.line_num}: is not CSV ({error}); correct the row"
        ) from error


def _cells(row: list[str], places: list[tuple[int, str]], where: str) -> tuple[Cell, ...]:
    last, column = max(places)
    if len(row) <= last:
        raise ConfigError(f"{where}: has {len(row)} cells and none for {column}; correct the row")
    return tuple(Cell(f"{where}: {name}", row[at].strip()) for at, name in places)
