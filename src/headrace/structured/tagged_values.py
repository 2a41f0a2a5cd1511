"""The values of parameters that are written between tags: texts without quotes, and JSON.

A reader tells by the parameter's types (`declared_types`) whether a text is JSON or a string. So
where a schema allows strings beside other types it restricts, no string may begin as one of those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from headrace.answer_formats.call_layout import TYPES, TaggedLayout
from headrace.answer_formats.tagged_calls import declared_types, types_of
from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition, expression, quoted, slashed
from headrace.structured.free_text import free_text
from headrace.structured.patterns import PatternError
from headrace.structured.schema_grammar import SPACED, of_schema
from headrace.structured.schema_walk import UNSUPPORTED_SCHEMA, stricter_than
from headrace.structured.text_patterns import FORMAT_PATTERNS, anchored

_ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title",
     "writeOnly"}
)  # fmt: skip
_STRING_KEYWORDS = frozenset({"format", "maxLength", "minLength", "pattern"})
_FIRST_CHARACTERS = {"array": "[", "integer": "0-9-", "number": "0-9-", "object": "{"}
_WORDS = {"boolean": ("true", "false", "True", "False"), "null": ("null", "None")}
_MAX_REFERENCES = 64
_MAX_SPLIT = 4000
"""Alternatives of one tool's parameters, references among them."""


@dataclass(slots=True)
class _Values:
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
            for name in _listed(schema.get("type", TYPES))
        }
        return found | {"integer"} if "number" in found else found


class TaggedValues:
    """The values of one tool's parameters, from behind the key up to and including the mark that
    ends each."""

    def __init__(
        self, rules: Composition, root: Mapping[str, Any], layout: TaggedLayout, param: str
    ) -> None:
        """root: the schema of all parameters, walked. param: where the request has the schema."""
        self._rules = rules
        self._root = root
        self._end = layout.value_end
        self._padding = layout.padding
        self._not_first = layout.not_first
        self._types = layout.types
        self._param = param
        self._num_split = 0

    def value(self, name: str, schema: Any, declared: object) -> str:
        """A rule's body for a parameter's value and its end.

        declared: the schema as the reader has it. RequestError where a value cannot be written.
        """
        values = _Values()
        self._split({} if schema is True else schema, values, 0)
        read_as = set(declared_types(declared) or TYPES)
        # What reads as JSON of a type that is free is as valid as the string would have been.
        mistaken = read_as - {"string"} - values.free_types()
        strings = list(filter(None, (self._string(each, mistaken) for each in values.strings)))
        free = bool(values.strings) and not values.strings[0] and not self._types
        others = [each for each in values.others if not (free and each.keys() <= {"type"})]
        if not self._types:
            bodies = [*strings, *map(self._json, others)]
        else:
            bodies = [f"{self._typed('string')} ({' | '.join(strings)})"] if strings else []
            bodies += (body for other in others for body in self._typed_json(other))
        if not bodies:
            raise self._refusal(name, "allows no value that can be written between tags")
        return " | ".join(bodies)

    def _typed(self, type: str) -> str:
        """What is written before a value of a type."""
        return self._rules.text(self._types[type] + self._padding)

    def _typed_json(self, schema: dict[str, Any]) -> list[str]:
        """Bodies for a schema of values that are not strings, by what is written before each."""
        by_mark: dict[str, list[str]] = {}
        for type in _listed(schema.get("type", TYPES)):
            if type != "string":
                by_mark.setdefault(self._typed(type), []).append(type)
        bodies: list[str] = []
        for mark, types in by_mark.items():
            part = {**schema, "type": types}
            if "enum" in part:
                part["enum"] = [each for each in part["enum"] if types_of(each) & {*types}]
                if not part["enum"]:
                    continue
            bodies.append(f"{mark} {self._json(part)}")
        return bodies

    def _json(self, schema: dict[str, Any]) -> str:
        if "$ref" in json.dumps(schema):
            shared = {key: self._root[key] for key in ("$defs", "definitions") if key in self._root}
            schema = {**shared, **schema}
        part = self._rules.part(of_schema(schema, self._param, SPACED))
        return f"{part} {self._rules.text(self._padding + self._end)}"

    def _string(self, schema: Mapping[str, Any], mistaken: set[str]) -> str:
        """Strings of a schema, without those that read as JSON of some types."""
        end = self._rules.text(self._padding + self._end)
        if "enum" in schema:
            texts = [text for text in schema["enum"] if self._is_plain(text, mistaken)]
            return " | ".join(f"{quoted(text)} {end}".strip() for text in texts)
        first = self._not_first + "".join(
            dict.fromkeys(_FIRST_CHARACTERS.get(name, "") for name in sorted(mistaken))
        )
        words = [word for name in sorted(mistaken) for word in _WORDS.get(name, ())]
        if not schema and not words:
            return self._free(first)
        return self._matched(schema, first, words)

    def _is_plain(self, text: str, mistaken: set[str]) -> bool:
        """Whether a text between tags is read as itself."""
        if self._end in text or (not self._padding and text.strip("\n") != text):
            return False
        if self._not_first and text.startswith(tuple(self._not_first)):
            return False
        try:
            value = json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
        except (ValueError, RecursionError):
            return True
        return isinstance(value, str) or not types_of(value) & mistaken

    def _free(self, first: str) -> str:
        """Any text, or one that does not begin with white space and certain characters."""
        text = free_text(self._rules, (self._end,))
        end = self._rules.text(self._end)
        if not first:
            return f"{text} {end}"
        begin = self._rules.rule(slashed(rf"[^\s<{_class(first)}]"), terminal=True)
        return f"{begin} {text} {end} | {self._rules.text(self._padding + self._end)}"

    def _matched(self, schema: Mapping[str, Any], first: str, words: Sequence[str]) -> str:
        """A text of some length or form; one expression with its end."""
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if not all(isinstance(each, int) and 0 <= each < 1 << 31 for each in (low, high or 0)):
            raise self._refusal("minLength", "is not a number of characters")
        parts = [slashed(f"(?s:.{{{low},{'' if high is None else high}}})")]
        if "pattern" in schema:
            try:
                parts.append(slashed(anchored(schema["pattern"])))
            except PatternError as error:
                raise self._refusal("pattern", f"cannot be written between tags: {error}") from None
        if "format" in schema:
            parts.append(slashed(FORMAT_PATTERNS[schema["format"]]))
        if first:
            parts.append(slashed(rf"([^\s{_class(first)}](?s:.*))?"))
        parts.append(f"~{slashed(f'(?s:.*){expression(self._end)}(?s:.*)')}")
        if words:
            parts.append("~" + slashed(rf"\s*({'|'.join(words)})\s*"))
        if not self._padding:  # a newline there would be read as padding
            parts.append("~" + slashed(r"\n(?s:.*)|(?s:.*)\n"))
        special = self._rules.is_special(self._end)
        rest = quoted(self._padding + ("" if special else self._end))
        name = self._rules.rule(f"({' & '.join(parts)}) {rest}", terminal=True)
        return f"{name} {self._rules.text(self._end)}" if special else name

    def _split(self, schema: Any, into: _Values, depth: int) -> None:
        """Add what a schema allows, strings apart from all else."""
        if schema is False:
            return
        if depth > _MAX_REFERENCES:
            raise self._refusal("$ref", "refers to itself")
        self._num_split += 1
        if self._num_split > _MAX_SPLIT:
            raise self._refusal("anyOf", "has too many alternatives")
        schema = {key: schema[key] for key in schema if key not in _ANNOTATIONS}
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
            allowed = _listed(schema.get("type", TYPES))
            values = [value for value in values if types_of(value) & {*allowed, "number"}]
            texts = [value for value in values if isinstance(value, str) and "string" in allowed]
            rest = [value for value in values if not isinstance(value, str)]
            if texts:
                into.strings.append({"enum": texts})
            if rest:
                into.others.append({**_without(schema, "const"), "enum": rest})
            return
        self._split_types(schema, into)

    def _split_types(self, schema: dict[str, Any], into: _Values) -> None:
        names = _listed(schema.get("type", TYPES))
        combined = schema.keys() & {"$ref", "allOf", "anyOf", "oneOf"}
        if "string" in names:
            if combined:
                # Only what is said of other values can be written as JSON.
                names = [name for name in names if name != "string"]
            else:
                into.strings.append(_only(schema, _STRING_KEYWORDS))
        rest = [name for name in names if name != "string"]
        if not rest:
            return
        if rest == [name for name in TYPES if name != "string"] and len(schema) == 0:
            into.others.append({"type": rest})
            return
        other = {key: schema[key] for key in schema if key not in _STRING_KEYWORDS}
        into.others.append({**other, "type": rest[0] if len(rest) == 1 else rest})

    def _target(self, reference: str) -> Any:
        """The schema at a place; the walk has found that there is one."""
        place: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            place = place[int(key)] if isinstance(place, list) else place[key]
        return place

    def _refusal(self, name: str, why: str) -> RequestError:
        return RequestError(
            f"{self._param}: {shown(name)} {why}, as calls of this model are written; write the "
            "schema without it",
            param=self._param,
            code=UNSUPPORTED_SCHEMA,
        )


def _within(schema: Any, types: object) -> Any:
    """A schema with the types that are stated beside it."""
    if types is None or not isinstance(schema, dict):
        return {"type": types} if schema is True and types is not None else schema
    names = [name for name in _listed(schema.get("type", TYPES)) if name in _listed(types)]
    return {**schema, "type": names} if names else False


def _listed(types: Any) -> list[str]:
    return (
        [types]
        if isinstance(types, str)
        else list(types)
        if isinstance(types, (list, tuple))
        else []
    )


def _only(schema: Mapping[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    return {key: schema[key] for key in schema if key in keywords}


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    return {key: schema[key] for key in schema if key != keyword}


def _class(characters: str) -> str:
    return characters.replace("[", r"\[")
