"""The fields of a client's JSON object, taken one by one; the remaining ones are unknown."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.body_json import decode_object

# Ollama holds integers in 64 bits.
_LARGEST = 2**63 - 1


class Fields:
    """The fields of a JSON object; null means absent, as in Ollama. path: that of the object, for
    errors ("messages[2]", "")."""

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self._values = dict(values)
        self._path = path

    def at(self, name: str) -> str:
        """The whole path of a field."""
        return f"{self._path}.{name}" if self._path else name

    def raw(self, name: str) -> Any:
        """Whatever it is."""
        return self._values.pop(name, None)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(name, value, "a string")

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, value, "true or false")

    def integer(self, name: str) -> int | None:
        """A whole number; 5.0 is one, as it is for Ollama."""
        value = self.raw(name)
        if value is None:
            return None
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or abs(value) > _LARGEST:
            raise self.wrong(name, value, "a whole number of 64 bits")
        return int(value)

    def number(self, name: str) -> float | None:
        """A finite number, as it was written."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        if isinstance(value, int):
            if abs(value) > _LARGEST:
                raise self.wrong(name, value, "a number of 64 bits")
        elif not math.isfinite(value):
            raise self.wrong(name, value, "a finite number")
        return value

    def array(self, name: str) -> list[Any]:
        """A list; [] if absent."""
        value = self.raw(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        raise self.wrong(name, value, "a list")

    def texts(self, name: str) -> list[str]:
        """A list of strings; [] if absent."""
        values = self.array(name)
        for number, value in enumerate(values):
            if not isinstance(value, str):
                raise self.wrong(f"{name}[{number}]", value, "a string")
        return values

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; [] if absent."""
        found = []
        for number, value in enumerate(self.array(name)):
            if not isinstance(value, dict):
                raise self.wrong(f"{name}[{number}]", value, "an object")
            found.append(Fields(value, self.at(f"{name}[{number}]")))
        return found

    def mapping(self, name: str) -> Fields | None:
        """An object."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, self.at(name))
        raise self.wrong(name, value, "an object")

    def rest(self) -> dict[str, Any]:
        """The fields that were not taken."""
        return self._values

    def wrong(self, name: str, value: object, wanted: str) -> RequestError:
        """The error to raise for a field that is not what it must be."""
        path = self.at(name)
        return RequestError(f"{path}: {shown(value)} is not {wanted}", param=path)

    def missing(self, name: str, remedy: str) -> RequestError:
        """The error to raise for a field that must be there."""
        path = self.at(name)
        return RequestError(f"{path}: is missing; {remedy}", param=path)


def read_fields(body: bytes) -> Fields:
    """The fields of a body; raises RequestError if it is not a JSON object."""
    return Fields(decode_object(body))


def encoded(values: dict[str, Any]) -> bytes:
    """JSON in one line; raises RequestError for what is nested too deeply to be written."""
    try:
        return msgspec.json.encode(values)
    except RecursionError:
        raise RequestError("the request is nested too deeply", code=TOO_COMPLEX) from None
