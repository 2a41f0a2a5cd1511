"""Reading files of JSON so that an error says the file, the line, the field and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from headrace.errors import ConfigError, shown

# A century in milliseconds, from 1970 or from a trace's own start.
MAX_TIMESTAMP_MS = 3_155_760_000_000


class Line:
    """An object of a file, and where it stands."""

    def __init__(self, where: str, fields: dict[str, Any]) -> None:
        self.where = where
        self.fields = fields

    def refuse(self, field: str, value: object, remedy: str) -> NoReturn:
        """Raises ConfigError."""
        raise ConfigError(f"{self.where}: {field} {shown(value)}: {remedy}")

    def whole(self, field: str, low: int, high: int) -> int:
        """A whole number within these limits."""
        value = self.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(field, value, f"must be a whole number from {low} to {high}")
        return value

    def optional_whole(self, field: str, low: int, high: int) -> int | None:
        """The same, or None where it is absent or null."""
        return None if self.fields.get(field) is None else self.whole(field, low, high)


def read_lines(path: Path) -> Iterator[Line]:
    """The objects of a JSONL file; empty lines are passed over.

    Raises ConfigError for a file that cannot be read and for a line that is no object.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield Line(f"{path}:{number}", _object(text, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def read_text(path: Path) -> str:
    """A whole file. Raises ConfigError where it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    """What is said of a file that is not there, not allowed or not text."""
    if isinstance(error, UnicodeDecodeError):
        return ConfigError(f"{path}: byte {error.start} is not UTF-8; convert the file")
    return ConfigError(f"{path}: {error.strerror or error}; name a file that can be read")


def parsed(text: str, where: str) -> Any:
    """Any JSON. Raises ConfigError that says where it breaks."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: is not JSON ({error}); correct or remove it") from error


def _object(text: str, where: str) -> dict[str, Any]:
    found = parsed(text, where)
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: {shown(found)} is not a JSON object; write one in each line")
    return found
