"""What the schema of a parameter allows, strings apart from all else.

Formats that write strings without the quotes of JSON write each kind of value in a way of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from headrace.answer_formats.layouts.call_layout import TYPES
from headrace.answer_formats.readers.tagged_calls import types_of
from headrace.errors import RequestError, shown
from headrace.structured.json_schema.formats import stricter_than
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA

ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title",
     "writeOnly"}
)  # fmt: skip
_STRING_KEYWORDS = frozenset({"format", "maxLength", "minLength", "pattern"})
_MAX_REFERENCES = 64
_MAX_SPLIT = 4000
"""Alternatives of one tool's parameters, references among them."""


@dataclass(slots=True)
class Values:
    """The values that a schema allows, strings apart from all else."""

    strings: list[Mapping[str, Any]] = field(default_factory=list)
    """Schemas of strings: of keywords of strings, or of an enumeration."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """Schemas of other values."""

    def free_types(self) -> set[str]:
        """Types of which every value is allowed."""
        found = {
            name
            for schema in self.others
            if schema.keys() <= {"type"}
            for name in listed(schema.get("type", TYPES))
        }
        return found | {"integer"} if "number" in found else found

    def by_type(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The schemas of other values, each for one type; "enum" for an enumeration."""
        for schema in self.others:
            if "enum" in schema:
                yield "enum", schema
                continue
            for name in listed(schema.get("type", TYPES)):
                if name != "string":
                    yield name, {**schema, "type": name}


class ValueKinds:
    """The kinds of values of one tool's parameters."""

    def __init__(self, root: Mapping[str, Any], param: str) -> None:
        """root: the schema of all parameters, walked. param: where the request has the schema."""
        self._root = root
        self._param = param
        self._num_split = 0

    def of(self, schema: Any) -> Values:
        """The values of a schema within the root. Raises RequestError where it is too much."""
        values = Values()
        self._split({} if schema is True else schema, values, 0)
        return values

    def refusal(self, name: str, why: str) -> RequestError:
        """The error for what cannot be written. name: of a keyword or a parameter."""
        return RequestError(
            f"{self._param}: {shown(name)} {why}, as calls of this model are written; write the "
            "schema without it",
            param=self._param,
            code=UNSUPPORTED_SCHEMA,
        )

    def _split(self, schema: Any, into: Values, depth: int) -> None:
        """Add what a schema allows, strings apart from all else."""
        if schema is False:
            return
        if schema is True:
            schema = {}
        if depth > _MAX_REFERENCES:
            raise self.refusal("$ref", "refers to itself")
        self._num_split += 1
        if self._num_split > _MAX_SPLIT:
            raise self.refusal("$ref and anyOf", "come to too many alternatives")
        schema = {key: schema[key] for key in schema if key not in ANNOTATIONS}
        if schema.get("allOf") == [stricter_than(schema.get("format"))]:
            del schema["allOf"]  # the walk's; the expressions of formats here are as strict
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema.keys() <= {keyword, "type"}:
                for option in schema[keyword]:
                    self._split(_within(option, schema.get("type")), into, depth + 1)
                return
        if schema.keys() == {"$ref"}:
            self._split(self._target(schema["$ref"]), into, depth + 1)
            return
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1 == len(schema):
            self._split(schema["allOf"][0], into, depth + 1)
            return
        values = schema["enum"] if isinstance(schema.get("enum"), list) else None
        if "const" in schema and values is None:
            values = [schema["const"]]
        if values is not None:
            allowed = listed(schema.get("type", TYPES))
            values = [value for value in values if types_of(value) & {*allowed, "number"}]
            texts = [value for value in values if isinstance(value, str) and "string" in allowed]
            rest = [value for value in values if not isinstance(value, str)]
            if texts:
                into.strings.append({"enum": texts})
            if rest:
                into.others.append({**_without(schema, "const"), "enum": rest})
            return
        _split_types(schema, into)

    def _target(self, reference: str) -> Any:
        """The schema at a place; the walk has found that there is one."""
        place: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            place = place[int(key)] if isinstance(place, list) else place[key]
        return place


def listed(types: Any) -> list[str]:
    """The types that the keyword "type" names."""
    if isinstance(types, str):
        return [types]
    return list(types) if isinstance(types, (list, tuple)) else []


def _split_types(schema: dict[str, Any], into: Values) -> None:
    names = listed(schema.get("type", TYPES))
    combined = schema.keys() & {"$ref", "allOf", "anyOf", "oneOf"}
    if "string" in names:
        if combined:
            # Only what is said of other values can be written as JSON.
            names = [name for name in names if name != "string"]
        else:
            into.strings.append({key: schema[key] for key in schema if key in _STRING_KEYWORDS})
    rest = [name for name in names if name != "string"]
    if not rest:
        return
    if rest == [name for name in TYPES if name != "string"] and len(schema) == 0:
        into.others.append({"type": rest})
        return
    other = {key: schema[key] for key in schema if key not in _STRING_KEYWORDS}
    into.others.append({**other, "type": rest[0] if len(rest) == 1 else rest})


def _within(schema: Any, types: object) -> Any:
    """A schema with the types that are stated beside it."""
    if types is None or not isinstance(schema, dict):
        return {"type": types} if schema is True and types is not None else schema
    names = [name for name in listed(schema.get("type", TYPES)) if name in listed(types)]
    return {**schema, "type": names} if names else False


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    return {key: schema[key] for key in schema if key != keyword}
