"""Lists and objects of a schema as their parts, and rules for parts that follow one another.

For formats that do not write them as JSON: what a schema says beyond the parts is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.structured.composition import Composition, quoted

NOTHING = '""'
_MAX_PREFIX = 64
"""Items of a list that have schemas of their own."""


class ShapeError(ValueError):
    """A keyword that the parts do not express."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


@dataclass(frozen=True, slots=True)
class ListShape:
    """The items of a list."""

    first: tuple[Any, ...]
    """Schemas of the first items, one each."""
    rest: Any
    """Of all further ones; False for none."""
    least: int
    """Items at least."""
    most: int | None
    """Items at most; None for any number."""


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """The members of an object."""

    members: tuple[tuple[str, Any, bool], ...]
    """Name, schema, and whether it has to be there, in the order in which they are written."""
    rest: Any
    """The schema of members with other names, where there are no members of known names; False for
    none."""
    least: int
    """Of those, how many there have to be: 0 or 1."""


def list_shape(schema: dict[str, Any]) -> ListShape:
    """The items of a walked schema of lists. Raises ShapeError."""
    _check(schema, {"type", "items", "prefixItems", "additionalItems", "minItems", "maxItems"})
    first, rest = schema.get("prefixItems", []), schema.get("items", True)
    if isinstance(rest, list):
        first, rest = rest, schema.get("additionalItems", True)
    if len(first) > _MAX_PREFIX:
        raise ShapeError("prefixItems")
    return ListShape(
        tuple(first), rest, _count(schema, "minItems") or 0, _count(schema, "maxItems")
    )


def object_shape(schema: dict[str, Any]) -> ObjectShape:
    """The members of a walked schema of objects. Raises ShapeError."""
    known = {"type", "properties", "required", "additionalProperties", "minProperties"}
    _check(schema, known)
    required = schema.get("required", [])
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    rest = schema.get("additionalProperties", True)
    for name in required:
        properties.setdefault(name, rest)
    least = _count(schema, "minProperties") or 0
    if properties and least > len(required):
        raise ShapeError("minProperties")
    members = tuple((name, inner, name in required) for name, inner in properties.items())
    return ObjectShape(members, False if members else rest, least)


def _check(schema: dict[str, Any], known: set[str]) -> None:
    for keyword in schema:
        if keyword not in known and keyword in _BEYOND_PARTS:
            raise ShapeError(keyword)


_BEYOND_PARTS = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "const", "enum", "maxProperties", "patternProperties"}
)
"""Keywords of lists and objects that no part expresses."""


def _count(schema: dict[str, Any], keyword: str) -> int | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or value != int(value) or not 0 <= value < 1 << 31:
        raise ShapeError(keyword)
    return int(value)


def members_rule(rules: Composition, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """A rule for members in their order with a separator between, of which some may be missing.

    members: the body of each, and whether it has to be there. Its size grows with the number of
    members: `rest[i]` is what may follow once one was written.
    """
    between = quoted(separator)
    rest = begins = ""
    for member, required in reversed(members):
        first = f"{member} {rest}"
        begins = first if required else f"{first} | {begins or NOTHING}"
        more = f"{between} {member} {rest}"
        rest = rules.rule(more if required else f"{more} | {rest or NOTHING}")
    return rules.rule(begins or NOTHING)


def items_rule(
    rules: Composition, shape: ListShape, first: Sequence[str], rest: str | None, separator: str
) -> str | None:
    """A rule for the items of a list; None where the value is not a list.

    first: rules of the first items, up to one that has no value. rest: of all further ones, None
    where there are none. separator: between two items.
    """
    between, least, most = quoted(separator), shape.least, shape.most
    if len(first) < len(shape.first):
        rest = None  # an item before it cannot be written
    count = len(first)
    if most is not None and most < count:
        count, rest = most, None
    if (rest is None and least > count) or (most is not None and least > most):
        return None
    follows = ""
    if rest is not None and most != count:
        item = f"{between} {rest}".strip()
        if not count:
            further = _repeated(item, max(0, least - 1), None if most is None else most - 1)
            body = f"{rest} {further}".strip()
            return rules.rule(body if least else f"({body})?")
        follows = _repeated(item, max(0, least - count), None if most is None else most - count)
    for at in range(count - 1, -1, -1):
        item = f"{between if at else ''} {first[at]} {follows}".strip()
        follows = rules.rule(item if at < least else f"({item})?")
    return follows or rules.rule(NOTHING)


def _repeated(item: str, least: int, most: int | None) -> str:
    """A body that comes so many times, which is nothing where that is none: Lark has no {0,0}."""
    return "" if most == 0 else f"({item}){{{least},{'' if most is None else most}}}"
