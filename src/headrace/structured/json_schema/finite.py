"""Which schemas have a value at all where they refer to each other, as a tree without leaves has
none.

The least fixed point: no schema has a value at first, and one has values of those types for which
all that must be within them has values already, until nothing changes. A type is dropped only
where no value of it can be valid, so that no schema with a value counts as one without; bounds of
numbers, texts and lists are not looked at, nor how several `anyOf` agree.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from headrace.structured.json_schema.costs import Pointer, target_of
from headrace.structured.json_schema.keywords import TYPES, schemas_in

MOST_READS = 100_000
"""Looks from one schema at another, 0.3 s; with more, every schema counts as one with values."""

_BITS = {name: 1 << index for index, name in enumerate(TYPES)}
_BITS["number"] |= _BITS["integer"]
_ANY = sum(1 << index for index in range(len(TYPES)))
_NONE = 0
_ALTERNATIVES = ("anyOf", "oneOf")
_COMBINED = ("allOf", *_ALTERNATIVES)
_PLAIN = re.compile(r"(\^?)([\w -]*)(\$?)", re.ASCII)
"""An expression of which it is known without more which names match."""


class Lack(NamedTuple):
    """The reason that a schema has no value."""

    pointer: Pointer
    keyword: str
    """What asks for something that does not exist, and where it stands."""
    within: Pointer | None
    """The schema without a value that it asks for; None where it is at fault itself."""


class _TooManyReadsError(Exception):
    """The end of a search that takes too long."""


class Values:
    """The types of the values that schemas have."""

    def __init__(self, schemas: Mapping[Pointer, Mapping[str, Any]], never: Set[Pointer]) -> None:
        """schemas: every schema within one, by where it is; a reference is to one of them. never:
        those of them that are `false`."""
        self._schemas = schemas
        self._never = never
        self._referred = {
            target_of(schema["$ref"]) for schema in schemas.values() if "$ref" in schema
        }
        self._types = dict.fromkeys(schemas, _NONE)
        self._stated: dict[Pointer, int] = {}
        self._readers: dict[Pointer, dict[Pointer, None]] = {}
        self._together: dict[Pointer, list[Pointer]] = {}
        self._reads = 0
        self._reader: Pointer = ()
        self._settle()

    def none_at(self, pointer: Pointer) -> bool:
        """Whether the schema at a place has no value there; False where it is not known."""
        return not self._types[pointer]

    def why_none(self) -> tuple[Lack, bool] | None:
        """Where to mend a schema that has no value, and whether it is for want of an end; None
        where it has values, or where the place takes too long to find."""
        if not self.none_at(()):
            return None
        self._reads = 0
        try:
            found = self._lack_at(())
        except _TooManyReadsError:
            return None
        seen: set[Pointer] = {()}
        while found.within is not None and not (
            found.within in seen or found.within in self._never
        ):
            seen.add(found.within)
            try:
                found = self._lack_at(found.within)
            except _TooManyReadsError:
                return found, False
        return found, found.within in seen

    def drop_empty(self) -> None:
        """Write `false` for every schema without a value: what allows others can be written, and
        nothing begins that has no end. What a reference leads into stays, without a value."""
        if all(self._types.values()):
            return
        within = {target[:length] for target in self._referred for length in range(len(target) + 1)}
        for pointer, schema in self._schemas.items():
            for steps, holder, key in schemas_in(schema):
                at = (*pointer, *steps)
                if steps[0] in ("$defs", "definitions") or not isinstance(holder[key], dict):
                    continue
                if not self.none_at(at):
                    continue
                if at in within:
                    holder[key]["enum"] = []
                else:
                    holder[key] = False

    def _settle(self) -> None:
        pending = deque([*self._schemas][::-1])  # those within come first
        waiting = set(pending)
        while pending:
            pointer = pending.popleft()
            waiting.discard(pointer)
            self._reader = pointer
            try:
                found = self._found(pointer)
            except _TooManyReadsError:
                self._types = dict.fromkeys(self._schemas, _ANY)
                return
            if found != self._types[pointer]:
                self._types[pointer] = found
                for reader in self._readers.get(pointer, ()):
                    if reader not in waiting:
                        waiting.add(reader)
                        pending.append(reader)

    def _read(self, count: int) -> None:
        self._reads += count
        if self._reads > MOST_READS:
            raise _TooManyReadsError

    def _of(self, pointer: Pointer) -> int:
        """The types of another schema, as far as they are known."""
        self._read(1)
        self._readers.setdefault(pointer, {})[self._reader] = None
        return self._types[pointer]

    def _found(self, pointer: Pointer) -> int:
        types = self._combined(pointer)
        if types & _BITS["object"] and self._no_object(pointer) is not None:
            types &= ~_BITS["object"]
        if types & _BITS["array"] and self._no_array(pointer) is not None:
            types &= ~_BITS["array"]
        return types

    def _combined(self, pointer: Pointer) -> int:
        """Types by what a schema says itself and by those that hold for the same value."""
        if pointer in self._never:
            return _NONE
        schema = self._schemas[pointer]
        types = self._stated_at(pointer)
        if "$ref" in schema:
            types &= self._of(target_of(schema["$ref"]))
        for part in _parts(pointer, schema, "allOf"):
            types &= self._of(part)
        for keyword in _ALTERNATIVES:
            if keyword in schema:
                alternatives = _NONE
                for part in _parts(pointer, schema, keyword):
                    alternatives |= self._of(part)
                types &= alternatives
        return types

    def _stated_at(self, pointer: Pointer) -> int:
        """What `_stated` gives of a schema, gone through once: an `enum` may be long."""
        self._read(1)
        if (found := self._stated.get(pointer)) is None:
            found = self._stated[pointer] = _stated(self._schemas[pointer])
        return found

    def _no_object(self, pointer: Pointer) -> Lack | None:
        """Why no object is a value; None if one may be."""
        together = self._all_at(pointer)
        self._read(sum(len(self._schemas[place].get("required", ())) for place in together))
        required = {
            name: place for place in together for name in self._schemas[place].get("required", ())
        }
        for name, place in required.items():
            for other in together:
                if (within := self._no_property(other, name)) is not None:
                    return Lack(place, "required", within)
        counted = [place for place in together if self._schemas[place].get("minProperties", 0)]
        for other in together if counted else ():
            inner = self._properties(other)
            if inner and not any(map(self._of, inner)):
                return Lack(counted[0], "minProperties", inner[0])
        return None

    def _no_property(self, pointer: Pointer, name: str) -> Pointer | None:
        """The schema for which an object of another has no property of a name; None if it may."""
        schema = self._schemas[pointer]
        self._read(1)
        at = (*pointer, "properties", name)
        if at in self._schemas:
            return None if self._of(at) else at
        patterns = schema.get("patternProperties", ())
        self._read(len(patterns))
        for pattern in patterns:
            at = (*pointer, "patternProperties", pattern)
            matches = _matches(pattern, name)
            if matches is None or (matches and self._of(at)):
                return None
            if matches:
                return at
        at = (*pointer, "additionalProperties")
        return at if at in self._schemas and not self._of(at) else None

    def _properties(self, pointer: Pointer) -> list[Pointer]:
        """Schemas of all properties that an object may have; none where one may be anything."""
        schema = self._schemas[pointer]
        others = (*pointer, "additionalProperties")
        if others not in self._schemas:
            return []
        return [
            *((*pointer, "properties", name) for name in schema.get("properties", ())),
            *(
                (*pointer, "patternProperties", name)
                for name in schema.get("patternProperties", ())
            ),
            others,
        ]

    def _no_array(self, pointer: Pointer) -> Lack | None:
        """Why no list is a value; None if one may be."""
        together = self._all_at(pointer)
        place = max(together, key=lambda place: self._least_items(place))
        if not (least := self._least_items(place)):
            return None
        for other in together:
            for at in self._items(other, least):
                if at in self._schemas and not self._of(at):
                    return Lack(place, "minItems", at)
        return None

    def _least_items(self, pointer: Pointer) -> int:
        least: int = self._schemas[pointer].get("minItems", 0)
        return least

    def _items(self, pointer: Pointer, least: int) -> Iterator[Pointer]:
        """Where the schemas of the first items are, if there are any."""
        schema = self._schemas[pointer]
        prefix, rest = "prefixItems", "items"
        if isinstance(schema.get("items"), list):
            prefix, rest = "items", "additionalItems"
        first = len(schema.get(prefix, ()))
        for index in range(min(first, least)):
            yield (*pointer, prefix, str(index))
        if least > first:
            yield (*pointer, rest)

    def _all_at(self, pointer: Pointer) -> list[Pointer]:
        """The schemas that hold for each value of one: itself, what it refers to, all of `allOf`,
        and those that it is a part or an alternative of, if nothing else refers to it."""
        found = self._together.get(pointer)
        if found is None:
            found = [pointer]
            known = {pointer}
            for each in found:  # grows meanwhile
                schema = self._schemas[each]
                beside = _parts(each, schema, "allOf")
                if "$ref" in schema:
                    beside.append(target_of(schema["$ref"]))
                if each not in self._referred and (around := self._around(each)) is not None:
                    beside.append(around)
                new = [other for other in beside if other not in known]
                known.update(new)
                found += new
            self._together[pointer] = found
        self._read(len(found))  # each is looked at by whoever asks
        return found

    def _around(self, pointer: Pointer) -> Pointer | None:
        """The schema that one is a part or an alternative of."""
        around, keyword = pointer[:-2], pointer[-2:-1]
        is_name = pointer[:-1] in self._schemas  # the keyword is the name of a property
        return around if keyword and keyword[0] in _COMBINED and not is_name else None

    def _lack_at(self, pointer: Pointer) -> Lack:
        """Why the schema at a place has no value, which it has not."""
        schema = self._schemas[pointer]
        if "$ref" in schema and not self._of(target := target_of(schema["$ref"])):
            return Lack(pointer, "$ref", target)
        for keyword in _COMBINED:
            parts = _parts(pointer, schema, keyword)
            empty = [part for part in parts if not self._of(part)]
            if empty and (keyword == "allOf" or len(empty) == len(parts)):
                return Lack(pointer, keyword, empty[0])
        types = self._stated_at(pointer)
        combined = (part for keyword in _COMBINED for part in _parts(pointer, schema, keyword))
        for place in (pointer, *combined):
            if types & _BITS["object"] and (found := self._no_object(place)) is not None:
                return found
            if types & _BITS["array"] and (found := self._no_array(place)) is not None:
                return found
        keyword = next((name for name in ("enum", *_COMBINED, "$ref") if name in schema), "type")
        return Lack(pointer, keyword, None)


def _stated(schema: Mapping[str, Any]) -> int:
    """The types of what `type`, `enum` and `const` let pass."""
    types = _ANY
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        types &= _united(_BITS[name] for name in names)
    if "enum" in schema:
        types &= _united(map(_type_of, schema["enum"]))
    if "const" in schema:
        types &= _type_of(schema["const"])
    return types


def _united(types: Iterator[int]) -> int:
    found = _NONE
    for each in types:
        found |= each
    return found


def _type_of(value: Any) -> int:
    match value:
        case None:
            return _BITS["null"]
        case bool():
            return _BITS["boolean"]
        case int():
            return _BITS["integer"]
        case float():
            return _BITS["integer"] if value.is_integer() else _BITS["number"]
        case str():
            return _BITS["string"]
        case list():
            return _BITS["array"]
    return _BITS["object"]


def _parts(pointer: Pointer, schema: Mapping[str, Any], keyword: str) -> list[Pointer]:
    return [(*pointer, keyword, str(index)) for index in range(len(schema.get(keyword, ())))]


def _matches(pattern: str, name: str) -> bool | None:
    """Whether an expression matches a name; None where that is not known."""
    plain = _PLAIN.fullmatch(pattern)
    if plain is None:
        return None
    begin, text, end = plain.groups()
    if begin and end:
        return name == text
    if begin or end:
        return name.startswith(text) if begin else name.endswith(text)
    return text in name
