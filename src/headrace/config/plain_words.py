"""What is wrong with a value of a YAML or JSON file, in words of such files and not of Python's."""

from __future__ import annotations

import re
import typing
from typing import Any

from headrace.config.load import nearest
from headrace.config.patterns import words_of_pattern
from headrace.errors import shown

_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `[^`]+`)?")
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"[0-9]+[mhdwMY]")
_SPAN_IN_WORDS = re.compile(r"([0-9]*) ?([A-Za-z]+)")
_SPAN_UNITS = frozenset("mhdwMY")
_SPAN_OF_WORD = {
    word: letter
    for letter, words in {
        "m": "min mins minute minutes minutely",
        "h": "h hr hrs hour hours hourly",
        "d": "d day days daily",
        "w": "w wk week weeks weekly",
        "M": "mo mon mth month months monthly",
        "Y": "y yr yrs year years yearly annual annually",
    }.items()
    for word in words.split()
}
# By the ends of names: what one of it is in seconds, and how it is called.
_UNITS = {"_ms": (0.001, "milliseconds"), "_days": (86_400.0, "days")}


def plain_value(value: object) -> str:
    """A value as YAML and JSON write it, cut when it is absurdly long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(value)


def plain_words(said: str, value: object, name: str) -> str:
    """Of msgspec's words about a value; others as they are. name: of the setting, whose ending is
    its unit."""
    found = _EXPECTED.fullmatch(said)
    if found is None:
        return said
    if (pattern := words_of_pattern(said)) is not None:
        return f"{pattern} is expected"
    kinds = [one for one in found[1].split(" | ") if one != "null"]
    wanted = " or ".join(_KINDS.get(one, one) for one in kinds)
    return f"{wanted}{found[2].removesuffix('.0')} is expected{_remedy(value, kinds, name)}"


def words_of(wanted: Any) -> tuple[str, ...]:
    """Of all literals in a type, in their order."""
    if typing.get_origin(wanted) is typing.Literal:
        return tuple(one for one in typing.get_args(wanted) if isinstance(one, str))
    return tuple(word for one in typing.get_args(wanted) for word in words_of(one))


def no_word(value: Any, said: str, words: tuple[str, ...]) -> str:
    """said: msgspec's own words, whose quoted value is the one of a list that is wrong."""
    given = value if isinstance(value, str) else said.partition("'")[2].rpartition("'")[0]
    meant = nearest(given, words)
    if any(_SPAN.fullmatch(one) for one in words) and (span := _span(given)):
        # What looks alike may be another length: 1mo is no minute.
        meant = f"; did you mean {span!r}?" if span in words else ""
    return f"{shown(given)} is not one of {', '.join(words)}{meant}"


def _span(given: str) -> str:
    """As windows are written: 1M of "1mo" and "monthly"; "" if it is no span of time."""
    found = _SPAN_IN_WORDS.fullmatch(given.strip())
    if found is None:
        return ""
    number, unit = found[1] or "1", found[2]
    letter = unit if unit in _SPAN_UNITS else _SPAN_OF_WORD.get(unit.lower(), "")
    return f"{number}{letter}" if letter else ""


def _remedy(value: Any, kinds: list[str], name: str) -> str:
    is_number = isinstance(value, int | float)
    if "str" in kinds and is_number:
        return f"; quote it: '{plain_value(value)}'"
    if isinstance(value, str) and {"int", "float"} & set(kinds):
        return _as_number(value, name)
    return ""


def _as_number(value: str, name: str) -> str:
    if duration := _DURATION.fullmatch(value.strip()):
        ending = next((one for one in _UNITS if name.endswith(one)), "")
        of_one_s, unit = _UNITS.get(ending, (1.0, "seconds"))
        number = float(duration[1]) * _SECONDS[duration[2]] / of_one_s
        return f"; it is in {unit}: {number:.12g}"
    try:
        return f"; write it without quotes: {float(value):.12g}"
    except ValueError:
        return ""
