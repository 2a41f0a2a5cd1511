"""Excluded bounds of numbers, which no answer is equal to, written so that llguidance holds them.

It lets an excluded whole number pass where the bound behind it, away from zero, is less than 1
away: 1 of {"exclusiveMinimum": 1, "maximum": 1.5}. The bound is then the next double; zero has none
that could be written out, and is refused. The other bound may be of another schema that holds for
the same value: of `allOf`, `anyOf`, `oneOf`, a `$ref`, or a property of the same name in one of
these. Where a definition is used twice, more schemas than do are taken to hold for one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.structured.json_schema.costs import Excess, Pointer, target_of

_EXCLUDED = (
    ("exclusiveMinimum", "minimum", ("maximum", "exclusiveMaximum"), 1),
    ("exclusiveMaximum", "maximum", ("minimum", "exclusiveMinimum"), -1),
)
_COMBINED = ("allOf", "anyOf", "oneOf")
_PLACES = {"properties": "object", "patternProperties": "object", "additionalProperties": "object",
           "prefixItems": "array", "items": "array", "additionalItems": "array"}  # fmt: skip
_CERTAIN = ("properties", "prefixItems")
"""Where the last step says which of the inner values is meant."""

Inner = tuple[str, str | None]
"""Of an object or of an array, and which value within it; None for any."""


def exclude_bounds(schemas: Mapping[Pointer, dict[str, Any]]) -> Excess | None:
    """Replaces excluded bounds by the next doubles where that is needed; the first place where it
    cannot be done. schemas: every schema within one, by where it is."""
    groups = _Groups(schemas)
    near: dict[tuple[Pointer, int], set[int]] = {}
    for pointer, schema in schemas.items():
        for _, _, others, sign in _EXCLUDED:
            limits = [each for name in others if (each := number(schema.get(name))) is not None]
            behind = near.setdefault((groups.of(pointer), sign), set())
            # Whole numbers less than 1 before these.
            behind |= {sign * math.floor(sign * each) for each in limits if each != int(each)}
    for pointer, schema in schemas.items():
        for excluding, including, _, sign in _EXCLUDED:
            is_draft_4 = schema.get(excluding) is True
            bound = number(schema.get(including if is_draft_4 else excluding))
            if bound is None or bound != int(bound) or sign * bound < 0:
                continue
            if int(bound) not in near[groups.of(pointer), sign]:
                continue
            if not bound:
                return Excess(pointer, excluding, "is 0 with the other bound less than 1 away")
            nearest = math.nextafter(bound, sign * math.inf)
            stated = number(schema.get(including))
            del schema[excluding]
            if stated is None or sign * (nearest - stated) > 0:
                schema[including] = nearest
    return None


def number(value: object) -> float | None:
    """A value that is a number; None for any other."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class _Groups:
    """Schemas by the value that they hold for."""

    def __init__(self, schemas: Mapping[Pointer, Mapping[str, Any]]) -> None:
        self._above = {pointer: pointer for pointer in schemas}
        self._inner: dict[Pointer, dict[Inner, Pointer]] = {pointer: {} for pointer in schemas}
        alike: list[tuple[Pointer, Pointer]] = []
        for pointer, schema in schemas.items():
            place = _place(pointer, schemas)
            if schema and place is not None:
                # Several that hold for what a schema does not name are taken to be one.
                alike.append((self._inner[place[0]].setdefault(place[1], pointer), pointer))
        for first, second in alike:
            self._join(first, second)
        for pointer, schema in schemas.items():
            for other in _beside(pointer, schema):
                if other in schemas:
                    self._join(pointer, other)

    def of(self, pointer: Pointer) -> Pointer:
        """One of the schemas that hold for the same value as this, the same for all of them."""
        above = self._above
        while above[pointer] != pointer:
            above[pointer] = above[above[pointer]]
            pointer = above[pointer]
        return pointer

    def _join(self, first: Pointer, second: Pointer) -> None:
        pending = [(first, second)]
        while pending:
            kept, gone = map(self.of, pending.pop())
            if kept == gone:
                continue
            if len(self._inner[kept]) < len(self._inner[gone]):
                kept, gone = gone, kept
            self._above[gone] = kept
            held, more = self._inner[kept], self._inner.pop(gone)
            for inner, pointer in more.items():
                pending.append((held.setdefault(inner, pointer), pointer))
            for kind in {kind for kind, name in more if name is None} | {
                kind for kind, name in held if name is None
            }:
                # What holds for any value of one holds for those that another names.
                alike = [inner for inner in held if inner[0] == kind]
                one = held[alike[0]]
                pending += [(one, held.pop(inner)) for inner in alike]
                held[kind, None] = one


def _place(
    pointer: Pointer, schemas: Mapping[Pointer, Mapping[str, Any]]
) -> tuple[Pointer, Inner] | None:
    """The schema that one is right within, and of which of its values it is."""
    for length in (1, 2):
        around, steps = pointer[:-length], pointer[-length:]
        if len(steps) == length and around in schemas:
            keyword, step = (*steps, None)[:2]
            is_certain = keyword in _CERTAIN or (keyword == "items" and step is not None)
            kind = _PLACES.get(str(keyword))
            return None if kind is None else (around, (kind, step if is_certain else None))
    return None


def _beside(pointer: Pointer, schema: Mapping[str, Any]) -> Iterator[Pointer]:
    """Schemas that hold for the same value."""
    if isinstance(reference := schema.get("$ref"), str):
        yield target_of(reference)
    for keyword in _COMBINED:
        ways = schema.get(keyword)
        for index in range(len(ways) if isinstance(ways, list) else 0):
            yield (*pointer, keyword, str(index))
