"""JSON schemas drawn at random, and values near those that they accept.

Keywords are combined as people combine them and as nobody would: what is drawn is always a schema
by its meta-schema, but it may have no value, refer to itself or contradict itself.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

Json = Any

_NAMES = ("a", "b", "ab", "name", "x y", "é", "a/b", "~", "$ref", "0", "type")
_TEXTS = (
    "",
    "a",
    "ab",
    "é",
    "x y",
    "2024-02-29",
    "a\nb",
    '"',
    "\\",
    "/",
    "😀",
    "10",
    "\u2028",
    "aaaa",
)
_NUMBERS = (0, 1, -1, 2, 7, 10, 255, 1.5, -0.5, 0.1, 1e3, 100.0, 2**31, 2**53 + 1, -(10**9), 1e-7)
_PATTERNS = (
    "^a", "b$", "^[a-c]+$", "^.$", "a|b", "^(a|bc){2,3}$", "^\\d{2,}$", "^\\w+$", "^\\s*$",
    "^\\S+$",
    "[^a]", "^[^\\d]$", "^$", "\\.", "^x-", "^[\\w.-]+@[a-z]+$", "(?:ab)*", "\\$", "^\\u00e9",
    "\\/",
    "^\\W$", "^[^\\s]$", "^\\D$", "^[-a]$", "^[a-]$", "^a{0}$",
    "(^a)|(b$)", "a^b", "^(?<n>a)$", "é+",
    "^[\\S\\d]$", "^.{2}$", "\\bx", "(?=a)", "^[^é]{1,2}$", "^(\\+|-)?[0-9]+$", "a{,3}", "^\\t",
)  # fmt: skip
_FORMATS = ("date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri",
            "uuid", "regex", "iri", "byte")  # fmt: skip
_REFUSED: tuple[dict[str, Json], ...] = (
    {"uniqueItems": True}, {"not": {"type": "null"}}, {"contains": {"const": 1}},
    {"if": {"const": 1}, "then": {"type": "null"}}, {"propertyNames": {"maxLength": 2}},
    {"unevaluatedProperties": False},
    {"dependentRequired": {"a": ["b"]}}, {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"dependencies": {"a": ["b"]}}, {"unevaluatedItems": False}, {"$dynamicRef": "#"},
)  # fmt: skip


# What says nothing of a value.
_NOTES: tuple[dict[str, Json], ...] = (
    {"title": "t"}, {"default": 1}, {"x-guidance": {"lenient": True}}, {"nullable": True},
)  # fmt: skip


def draw(rng: random.Random) -> dict[str, Json]:
    """A schema."""
    definitions = [f"d{index}" for index in range(rng.choice((0, 0, 1, 2)))]
    schema = _schema(rng, rng.choice((1, 2, 3)), definitions)
    if definitions:
        schema["$defs"] = {name: _of_type(rng, 1, definitions) for name in definitions}
    return schema


def _schema(rng: random.Random, depth: int, definitions: list[str]) -> dict[str, Json]:
    chance = rng.random()
    if definitions and chance < 0.12:
        schema = {"$ref": f"#/$defs/{rng.choice(definitions)}"}
        return schema | (_of_type(rng, 0, definitions) if rng.random() < 0.2 else {})
    if depth and chance < 0.35:
        key = rng.choice(("anyOf", "anyOf", "allOf", "oneOf"))
        ways = [_schema(rng, depth - 1, definitions) for _ in range(rng.choice((1, 2, 2, 3)))]
        return {key: ways} | (_of_type(rng, 0, definitions) if rng.random() < 0.4 else {})
    if chance < 0.42:
        return {"enum": [_value(rng, 2) for _ in range(rng.choice((1, 2, 4)))]}
    if chance < 0.47:
        return {"const": _value(rng, 2)}
    schema = _of_type(rng, depth, definitions)
    if rng.random() < 0.04:
        schema |= rng.choice(_REFUSED)
    if rng.random() < 0.05:
        schema |= rng.choice(_NOTES)
    return schema


def _of_type(rng: random.Random, depth: int, definitions: list[str]) -> dict[str, Json]:
    kinds = list(_KEYWORDS)
    kind = rng.choice(kinds)
    schema: dict[str, Json] = {"type": kind}
    if rng.random() < 0.08:
        schema["type"] = rng.sample([*kinds, "boolean", "null"], 2)
    elif rng.random() < 0.06:
        del schema["type"]
    keywords = _KEYWORDS[kind]
    for name in rng.sample(list(keywords), min(len(keywords), rng.choice((0, 1, 1, 2, 3)))):
        schema[name] = keywords[name](rng, depth, definitions)
    if kind == "object" and "properties" not in schema and rng.random() < 0.7:
        schema["properties"] = keywords["properties"](rng, depth, definitions)
    return schema


def _inner(rng: random.Random, depth: int, definitions: list[str]) -> Json:
    if rng.random() < 0.08:
        return rng.random() < 0.5
    return _schema(rng, depth - 1, definitions) if depth > 0 else {"type": "integer"}


def _named(names: tuple[str, ...], most: int) -> Callable[[random.Random, int, list[str]], Json]:
    def draw_named(rng: random.Random, depth: int, definitions: list[str]) -> Json:
        chosen = rng.sample(names, rng.randint(0, most))
        return {name: _inner(rng, depth, definitions) for name in chosen}

    return draw_named


def _several(rng: random.Random, depth: int, definitions: list[str]) -> Json:
    return [_inner(rng, depth, definitions) for _ in range(rng.choice((1, 2)))]


def _count(rng: random.Random, depth: int, definitions: list[str]) -> Json:
    return rng.choice((0, 1, 2, 3, 5, 20))


def _number(rng: random.Random, depth: int, definitions: list[str]) -> Json:
    return rng.choice(_NUMBERS)


_KEYWORDS: dict[str, dict[str, Callable[[random.Random, int, list[str]], Json]]] = {
    "object": {
        "properties": _named(_NAMES, 4),
        "required": lambda rng, *_: rng.sample(_NAMES, rng.choice((1, 1, 2, 3))),
        "additionalProperties": _inner,
        "patternProperties": _named(_PATTERNS, 2),
        "minProperties": _count,
        "maxProperties": _count,
    },
    "array": {
        "items": _inner,
        "prefixItems": _several,
        "minItems": _count,
        "maxItems": _count,
    },
    "string": {
        "minLength": _count,
        "maxLength": _count,
        "pattern": lambda rng, *_: rng.choice(_PATTERNS),
        "format": lambda rng, *_: rng.choice(_FORMATS),
    },
    "integer": {
        "minimum": _number,
        "maximum": _number,
        "exclusiveMinimum": _number,
        "exclusiveMaximum": _number,
        "multipleOf": lambda rng, *_: rng.choice((1, 2, 3, 5, 7, 10, 0.5, 1.5, 1000)),
    },
    "number": {
        "minimum": _number,
        "maximum": _number,
        "exclusiveMinimum": _number,
        "exclusiveMaximum": _number,
        "multipleOf": lambda rng, *_: rng.choice((1, 2, 0.5, 0.25, 0.01, 2.5, 3)),
    },
}


def _value(rng: random.Random, depth: int) -> Json:
    chance = rng.random()
    if depth and chance < 0.12:
        return [_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 2)))]
    if depth and chance < 0.28:
        return {name: _value(rng, depth - 1) for name in rng.sample(_NAMES, rng.choice((0, 1, 2)))}
    if chance < 0.6:
        return rng.choice(_TEXTS)
    return rng.choice((*_NUMBERS, None, True, False))


def nearby(value: Json, rng: random.Random) -> Json:
    """A value that differs from one in one place."""
    root = [copy.deepcopy(value)]
    places: list[tuple[Any, Any]] = [(root, 0)]
    for holder, key in places:
        inner = holder[key]
        if isinstance(inner, dict):
            places += [(inner, name) for name in inner]
        elif isinstance(inner, list):
            places += [(inner, index) for index in range(len(inner))]
    holder, key = rng.choice(places)
    holder[key] = _changed(holder[key], rng)
    return root[0]


def _changed(value: Json, rng: random.Random) -> Json:
    chance = rng.random()
    if chance < 0.3:
        return _value(rng, 1)
    if isinstance(value, dict):
        names = list(value)
        if names and chance < 0.7:
            del value[rng.choice(names)]
            return value
        return value | {rng.choice(_NAMES): _value(rng, 1)}
    if isinstance(value, list):
        if value and chance < 0.6:
            del value[rng.randrange(len(value))]
            return value
        return [*value, _value(rng, 1)]
    if isinstance(value, str):
        at = rng.randint(0, len(value))
        return (
            value[:at]
            + rng.choice(("", "a", "é", "\n", "0", " "))
            + value[at + rng.randint(0, 1) :]
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return rng.choice((value + 1, value - 1, -value, value * 10, value + 0.5))
    return _value(rng, 0)
