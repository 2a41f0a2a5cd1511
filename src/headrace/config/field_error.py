"""What is wrong with a field of a request that msgspec refused: its place, and plain words."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.config.load import nearest
from headrace.config.plain_words import no_word, plain_words, words_of

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class FieldError(NamedTuple):
    """A field that could not be read, and why."""

    place: str
    """Below what was converted, as ".sort" or "[0]"; "" for all of it."""
    said: str


def field_error(error: msgspec.ValidationError, given: Any, of: type[msgspec.Struct]) -> FieldError:
    """given: what was converted to `of`; its values are shown."""
    said, _, at = str(error).partition(" - at `$")
    place = at.rstrip("`")
    value, wanted = _at(place, given, of)
    if unknown := _UNKNOWN.fullmatch(said):
        names = [one.encode_name for each in _structs(wanted) for one in _fields(each)]
        meant = nearest(unknown[1], names) or f"; the fields are {', '.join(names)}"
        return FieldError(place, f"unknown field {unknown[1]!r}{meant}")
    if missing := _MISSING.fullmatch(said):
        return FieldError(place, f"{missing[1]} must be given")
    if said.startswith("Invalid enum value") and (words := words_of(wanted)):
        return FieldError(place, no_word(value, said, words))
    name = _STEP.findall(place)[-1][0] if place else ""
    return FieldError(place, plain_words(said, value, name))


def _at(place: str, given: Any, of: Any) -> tuple[Any, Any]:
    """The value at a place, and what is wanted there."""
    value, wanted = given, of
    for name, number in _STEP.findall(place):
        if name:
            inner = (one for each in _structs(wanted) for one in _fields(each))
            wanted = next((one.type for one in inner if one.encode_name == name), wanted)
            value = value.get(name) if isinstance(value, dict) else None
        else:
            in_list = isinstance(value, list) and int(number) < len(value)
            value = value[int(number)] if in_list else None
    return value, wanted


def _structs(wanted: Any) -> Iterator[type[msgspec.Struct]]:
    """All of a type, also within unions."""
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        yield wanted
    for one in typing.get_args(wanted):
        yield from _structs(one)


def _fields(of: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(of)
