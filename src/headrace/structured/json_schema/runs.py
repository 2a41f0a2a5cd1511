"""Where a schema leaves no choice about more text than an answer may be made to write at once.

Counted bottom up over every schema within one: constants, names of required properties, items that
have to be there, and what expressions spell out. A schema that is within itself is counted once:
an answer that goes down another time has chosen to. This is a heuristic: where schemas hold
together more may be counted than is forced; less, where they leave one value together that each of
them leaves among others (two enumerations that share it), and of some expressions (`forced_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.structured.forced_text import (
    FREE,
    MAX_FORCED_BYTES,
    ForcedText,
    at_once,
    either,
    forced_by,
    joined,
    optional,
    repeated,
    text_of,
)
from headrace.structured.json_schema.costs import Pointer, target_of

_BLAMED = (
    "const", "enum", "pattern", "minItems", "prefixItems", "properties", "required", "allOf",
    "$ref", "anyOf", "oneOf", "items", "patternProperties", "additionalProperties",
)  # fmt: skip
_OF_OBJECTS = frozenset({"properties", "required", "patternProperties", "additionalProperties"})
_OF_ARRAYS = frozenset({"items", "prefixItems", "additionalItems"})

Schemas = Mapping[Pointer, Mapping[str, Any]]


class TooLong(NamedTuple):
    """A place of a schema that forces too much."""

    pointer: Pointer
    keyword: str
    num_bytes: int


def too_long(schemas: Schemas) -> TooLong | None:
    """The first and innermost place with more than MAX_FORCED_BYTES; None where there is none.

    schemas: every schema within one, by where it is; a reference is to one of them.
    """
    for pointer, found in _counted(schemas):
        if found.run > MAX_FORCED_BYTES:
            schema = schemas[pointer]
            keyword = next((name for name in _BLAMED if name in schema), "type")
            return TooLong(pointer, keyword, found.run)
    return None


def forced_by_schema(schema: Mapping[str, Any]) -> ForcedText:
    """What all of a schema forces, for what it stands in. The schema was walked, so that none of
    its places forces too much alone."""
    schemas: dict[Pointer, Mapping[str, Any]] = {}
    pending: list[tuple[Pointer, Any]] = [((), schema)]
    while pending:
        pointer, value = pending.pop()
        if isinstance(value, dict):
            schemas[pointer] = value
            pending += [((*pointer, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            pending += [((*pointer, str(at)), inner) for at, inner in enumerate(value)]
    return dict(_counted(schemas))[()]


def _counted(schemas: Schemas) -> Iterator[tuple[Pointer, ForcedText]]:
    """What each forces, the innermost first."""
    counted: dict[Pointer, ForcedText] = {}
    begun: set[Pointer] = set()
    pending: list[Pointer] = list(schemas)[::-1]
    while pending:
        pointer = pending[-1]
        if pointer in counted:
            pending.pop()
            continue
        schema = schemas[pointer]
        if pointer not in begun:
            begun.add(pointer)
            inner = (at for at in _inner(pointer, schema) if at in schemas)
            pending += [at for at in inner if at not in begun]
            continue
        pending.pop()
        found = counted[pointer] = _forced(pointer, schema, lambda at: counted.get(at, FREE))
        yield pointer, found


def _inner(pointer: Pointer, schema: Mapping[str, Any]) -> Iterator[Pointer]:
    """Every schema that one is made of."""
    if isinstance(reference := schema.get("$ref"), str):
        yield target_of(reference)
    for keyword in ("allOf", "anyOf", "oneOf", "prefixItems", "items"):
        for index in range(len(_listed(schema.get(keyword)))):
            yield (*pointer, keyword, str(index))
    for keyword in ("properties", "patternProperties"):
        for name in _named(schema.get(keyword)):
            yield (*pointer, keyword, name)
    for keyword in ("items", "additionalItems", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield (*pointer, keyword)


def _forced(
    pointer: Pointer, schema: Mapping[str, Any], forced: Callable[[Pointer], ForcedText]
) -> ForcedText:
    if "const" in schema:
        return text_of(_json(schema["const"]))
    if isinstance(values := schema.get("enum"), list):
        return either(text_of(_json(value)) for value in values)
    together = [
        forced((*pointer, "allOf", str(at))) for at in range(len(_listed(schema.get("allOf"))))
    ]
    for keyword in ("anyOf", "oneOf"):
        ways = range(len(_listed(schema.get(keyword))))
        if ways:
            together.append(either(forced((*pointer, keyword, str(at))) for at in ways))
    if isinstance(reference := schema.get("$ref"), str):
        together.append(forced(target_of(reference)))
    together.append(_of_kinds(pointer, schema, forced))
    return at_once(together)


def _of_kinds(
    pointer: Pointer, schema: Mapping[str, Any], forced: Callable[[Pointer], ForcedText]
) -> ForcedText:
    """By its type and the keywords of each; of any type where none is stated."""
    stated = schema.get("type")
    kinds = [stated] if isinstance(stated, str) else _listed(stated) or ["object", "array"]
    if len(set(map(str, kinds))) == 1 and (only := _only_text(str(kinds[0]), schema)) is not None:
        return text_of(only)
    ways = [FREE]
    if "object" in kinds and not _OF_OBJECTS.isdisjoint(schema):
        ways.append(_of_object(pointer, schema, forced))
    if "array" in kinds and not _OF_ARRAYS.isdisjoint(schema):
        ways.append(_of_array(pointer, schema, forced))
    if isinstance(pattern := schema.get("pattern"), str):
        quote = text_of('"')
        ways.append(joined((quote, forced_by(pattern), quote)))
    is_one = len(ways) == 2 and kinds in (["object"], ["array"], ["string"])
    return ways[1] if is_one else either(ways)


def _only_text(kind: str, schema: Mapping[str, Any]) -> bytes | None:
    """Of a type of which no other value is valid."""
    if kind == "null":
        return b"null"
    if kind == "string" and schema.get("maxLength") == 0:
        return b'""'
    least = schema.get("minimum")
    if kind in ("integer", "number") and least is not None and least == schema.get("maximum"):
        return _json(least)
    return None


def _of_object(
    pointer: Pointer, schema: Mapping[str, Any], forced: Callable[[Pointer], ForcedText]
) -> ForcedText:
    required = {name for name in _listed(schema.get("required")) if isinstance(name, str)}
    properties, patterns = _named(schema.get("properties")), _named(schema.get("patternProperties"))
    parts = [text_of("{")]
    for name in properties:
        value = forced((*pointer, "properties", name))
        part = joined((text_of(f'"{name}":'), value, text_of(",")))
        parts.append(part if name in required else optional(part))
    parts += [text_of(f'"{name}":,') for name in sorted(required - properties.keys())]
    for name in patterns:
        value = forced((*pointer, "patternProperties", name))
        parts.append(optional(joined((text_of('"'), forced_by(name), text_of('":'), value))))
    others = schema.get("additionalProperties")
    if others is not False:
        at = (*pointer, "additionalProperties")
        parts.append(optional(forced(at)) if isinstance(others, dict) else FREE)
    return joined((*parts, text_of("}")))


def _of_array(
    pointer: Pointer, schema: Mapping[str, Any], forced: Callable[[Pointer], ForcedText]
) -> ForcedText:
    prefix, rest = ("prefixItems", "items")
    if isinstance(schema.get("items"), list):
        prefix, rest = ("items", "additionalItems")
    least, most = _count(schema.get("minItems")) or 0, _count(schema.get("maxItems"))
    num_prefix = len(_listed(schema.get(prefix)))
    parts = [text_of("[")]
    for index in range(num_prefix if most is None else min(most, num_prefix)):
        item = joined((forced((*pointer, prefix, str(index))), text_of(",")))
        parts.append(item if index < least else optional(item))
    if schema.get(rest) is not False and (most is None or most > num_prefix):
        item = joined((forced((*pointer, rest)), text_of(",")))
        left = None if most is None else most - num_prefix
        needed = max(0, least - num_prefix)
        parts.append(repeated(item if needed else optional(item), needed, left))
    return joined((*parts, text_of("]")))


def _count(value: Any) -> int | None:
    """What minItems and maxItems say."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(max(0, min(value, 1 << 32))) if is_number else None


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return b""  # what cannot be written is refused elsewhere


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _named(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
