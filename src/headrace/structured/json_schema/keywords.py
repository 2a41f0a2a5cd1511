"""What the value of each keyword is, as the meta-schemas of draft 4 to 2020-12 say, and which
keywords hold schemas.

Schemas within a schema are found by its keywords alone, so that the name of a property is never
read as a keyword, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

MOST_COUNTED = 2**32 - 1
"""The largest count that llguidance repeats an expression; no answer has as many characters."""


class Kind(NamedTuple):
    """A kind of values of keywords."""

    expected: str
    """What a value has to be, for who wrote another."""
    has: Callable[[Any], bool]
    """Whether a value is of the kind. Of a schema within, the container alone is looked at."""
    holds: bool = False
    """Whether it is made of schemas: one, a list of them, or an object of them by any names."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


_SCHEMA = Kind("a schema: an object, true or false", _is(dict, bool), holds=True)
_SCHEMAS = Kind("a list of schemas", _is(list), holds=True)
_ITEMS = Kind("a schema, or a list of schemas", _is(dict, bool, list), holds=True)
_NAMED = Kind("an object whose values are schemas", _is(dict), holds=True)
_COUNT = Kind("a whole number, 0 or more", _is_count)
_NUMBER = Kind("a number", _is_number)
_EXCLUDED = Kind("a number (in draft 4: true or false)", _is(int, float))
_FACTOR = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
_TEXT = Kind("a text", _is(str))
_TEXTS = Kind(
    "a list of texts",
    lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
)
_VALUES = Kind("a list of values", _is(list))
_KINDS = Kind(f"one of {', '.join(TYPES)}, or a list of some of them", _are_types)

VALUES: Mapping[str, Kind] = {
    "properties": _NAMED,
    "patternProperties": _NAMED,
    "$defs": _NAMED,
    "definitions": _NAMED,
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "prefixItems": _SCHEMAS,
    "items": _ITEMS,
    "additionalItems": _SCHEMA,
    "additionalProperties": _SCHEMA,
    "$ref": _TEXT,
    "type": _KINDS,
    "enum": _VALUES,
    "format": _TEXT,
    "pattern": _TEXT,
    "required": _TEXTS,
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "minProperties": _COUNT,
    "maxProperties": _COUNT,
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _EXCLUDED,
    "exclusiveMaximum": _EXCLUDED,
    "multipleOf": _FACTOR,
}
"""Of every keyword that changes which values are valid and is held; a `const` may be anything."""

COUNTS = tuple(keyword for keyword, kind in VALUES.items() if kind is _COUNT)
HOLDING = tuple(keyword for keyword, kind in VALUES.items() if kind.holds)
"""Keywords whose values are made of schemas."""


def schemas_in(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every schema right within one whose keywords have values of their kinds: the steps to it,
    and the container and the key or index that it is at."""
    for keyword in HOLDING:
        value = schema.get(keyword)
        if isinstance(value, list):
            for index in range(len(value)):
                yield (keyword, str(index)), value, index
        elif isinstance(value, dict) and VALUES[keyword] is _NAMED:
            for name in value:
                yield (keyword, name), value, name
        elif keyword in schema:
            yield (keyword,), schema, keyword
