"""Catalog files as they are written: TOML with arrays of tables, one for each kind of row.

A file may hold rows of any kinds, `[[source]]` and `[[contradiction]]` tables, and `[defaults]` for
the source, date and confidence of its facts. Meaning is checked where rows are built; here it is
only the shape.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.catalog.contradiction import Contradiction
from headrace.catalog.fact import Source
from headrace.catalog.names import SLUG, hint
from headrace.catalog.rows import KINDS
from headrace.catalog.schema import DEFAULT_KEYS
from headrace.errors import CatalogError, shown

E = TypeVar("E", Source, Contradiction)

# All that ships is under 1 MB; prices imported from LiteLLM are 2 MB.
MAX_FILE_BYTES = 16 * 2**20


class Written(NamedTuple):
    """A row as a file has it."""

    kind: str
    id: str
    table: Mapping[str, Any]
    defaults: Mapping[str, Any]
    """Of its file."""
    origin: str
    """What errors call the file."""

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"{self.origin}: {self.kind} {self.id!r}"


class CatalogFile(NamedTuple):
    """The content of one file."""

    rows: list[Written]
    sources: list[Source]
    contradictions: list[Contradiction]


def toml_files(folder: Path) -> list[Path]:
    """The TOML files of a folder and of those in it, in order of their names."""
    if not folder.is_dir():
        raise CatalogError(
            f"{folder}: there is no such folder; a catalog is a folder of .toml files"
        )
    return sorted(path for path in folder.rglob("*.toml") if path.is_file())


def read_catalog_file(path: Path, origin: str) -> CatalogFile:
    """Read one file. origin: what errors and facts call it. Raises CatalogError."""
    parsed = _parse(path, origin)
    known = {*KINDS, "source", "contradiction", "defaults"}
    for key in parsed:
        if key not in known:
            raise CatalogError(f"{origin}: unknown table {key!r}; {hint(key, sorted(known))}")
    defaults = parsed.get("defaults", {})
    if not isinstance(defaults, dict):
        raise CatalogError(f"{origin}: defaults: write them as a [defaults] table")
    for key in defaults:
        if key not in DEFAULT_KEYS:
            raise CatalogError(f"{origin}: defaults: unknown {key!r}; {hint(key, DEFAULT_KEYS)}")
    rows = [
        Written(kind, _id(table, f"{origin}: {kind} {number}"), table, defaults, origin)
        for kind in KINDS
        for number, table in enumerate(_tables(parsed, kind, origin), 1)
    ]
    return CatalogFile(
        rows,
        [_entry(table, Source, origin) for table in _tables(parsed, "source", origin)],
        [
            _entry(table, Contradiction, origin)
            for table in _tables(parsed, "contradiction", origin)
        ],
    )


def _parse(path: Path, origin: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CatalogError(f"{origin}: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise CatalogError(f"{origin}: has more than {MAX_FILE_BYTES} bytes, which is the limit")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CatalogError(f"{origin}: not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{origin}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise CatalogError(f"{origin}: tables are nested too deeply") from error


def _tables(parsed: Mapping[str, Any], kind: str, origin: str) -> Iterable[dict[str, Any]]:
    found = parsed.get(kind, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise CatalogError(f"{origin}: {kind}: write each as a [[{kind}]] table, in two brackets")
    return found


def _id(table: Mapping[str, Any], where: str) -> str:
    row_id = table.get("id")
    if not isinstance(row_id, str):
        raise CatalogError(f'{where}: has no id; give it one, e.g. id = "h100-sxm"')
    if not SLUG.fullmatch(row_id):
        raise CatalogError(
            f"{where}: id {shown(row_id)}: use small letters and digits, with . _ or - between them"
        )
    return row_id


def _entry(table: dict[str, Any], entry: type[E], origin: str) -> E:
    """A source or a contradiction; a date may be a TOML date or text."""
    what = entry.__name__.lower()
    where = f"{origin}: {what} {shown(table.get('id', '?'))}"
    for key in table:
        if key not in entry.__struct_fields__:
            raise CatalogError(f"{where}: unknown {key!r}; {hint(key, entry.__struct_fields__)}")
    try:
        return msgspec.convert(table, entry)
    except msgspec.ValidationError as error:
        raise CatalogError(f"{where}: {error}") from error


def as_date(value: object) -> dt.date:
    """A TOML date, or text such as "2026-03-01"; ValueError for anything else."""
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    raise ValueError(f"{value!r} is not a date")
