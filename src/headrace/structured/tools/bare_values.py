"""Arguments as Gemma writes them: JSON whose keys and strings have no quotes, by a schema.

    {city:<|"|>Oslo<|"|>,days:3,at:{hours:[6,18]}}

Lists and objects are nested up to MAX_CONTAINERS deep: values that would go deeper are not written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.answer_formats.layouts.call_layout import TYPES, BareKeyLayout
from headrace.answer_formats.readers.tagged_calls import (
    declared_item,
    declared_member,
    declared_types,
)
from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition, quoted
from headrace.structured.json_schema.grammar import COMPACT, of_schema
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA
from headrace.structured.tools.marked_texts import MarkedTexts
from headrace.structured.tools.parameters import parameters_of
from headrace.structured.tools.value_kinds import ValueKinds
from headrace.structured.tools.value_shapes import (
    ShapeError,
    items_rule,
    list_shape,
    members_rule,
    object_shape,
)

MAX_CONTAINERS = 16
"""Lists and objects within one another; the reader takes 64, and each level has rules of its
own."""
MAX_NAME_CHARS = 200
ANY_NAME = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
WORDS = {True: "true", False: "false", None: "null"}


def bare_arguments(
    rules: Composition, layout: BareKeyLayout, schema: Mapping[str, Any] | None, param: str
) -> str:
    """A rule for all arguments of a call in their braces; None for any of them.

    Raises RequestError for a schema whose values cannot be written so.
    """
    if schema is None:
        values = BareValues(rules, {}, layout, param)
        return rules.rule(values.container("object", {"type": "object"}, None, 0) or "")
    root, parameters = parameters_of(schema, param)
    values = BareValues(rules, root, layout, param)
    members: list[tuple[str, bool]] = []
    for parameter in parameters:
        values.check_name(parameter.name)
        declared = declared_member(schema, parameter.name)
        value = values.value(parameter.schema, declared, 1)
        if value is None and parameter.required:
            raise values.refusal(parameter.name, "allows no value that can be written")
        if value is not None:
            members.append((f"{quoted(parameter.name + ':')} {value}", parameter.required))
    return rules.rule(f'"{{" {members_rule(rules, members, ",")} "}}"')


class BareValues:
    """The values of one tool's arguments."""

    def __init__(
        self, rules: Composition, root: Mapping[str, Any], layout: BareKeyLayout, param: str
    ) -> None:
        """root: the schema of all arguments, walked. param: where the request has the schema."""
        self._rules = rules
        self._kinds = ValueKinds(root, param)
        self.refusal = self._kinds.refusal
        self._texts = MarkedTexts(rules, layout.quote, self._kinds.refusal)
        self._mark = layout.quote
        self._quote = rules.text(layout.quote)
        self._quoted_json = layout.quoted_json
        self._param = param
        self._made: dict[tuple[str, str, int], str | None] = {}

    def check_name(self, name: str) -> None:
        """Raises RequestError for a name that would be read as another one."""
        unreadable = ":" in name or self._mark in name or name.startswith("}")
        if not name or name.strip(" \t\r\n\"'") != name or unreadable or len(name) > MAX_NAME_CHARS:
            raise RequestError(
                f"{self._param}: the property {shown(name)} cannot be written without quotes, as "
                "calls of this model are; rename it",
                param=self._param,
                code=UNSUPPORTED_SCHEMA,
            )

    def value(self, schema: Any, declared: object, depth: int) -> str | None:
        """A rule for a value of a schema; None where none can be written.

        declared: the schema as the reader has it. depth: containers around it.
        """
        read_as = declared if self._quoted_json else None
        key = (json.dumps(schema), json.dumps(read_as), depth)
        if key not in self._made:
            bodies = self._bodies(schema, read_as, depth)
            self._made[key] = self._rules.rule(" | ".join(bodies)) if bodies else None
        return self._made[key]

    def _bodies(self, schema: Any, declared: object, depth: int) -> list[str]:
        values = self._kinds.of(schema)
        mistaken: set[str] = set()
        if self._quoted_json and declared_types(declared) != {"string"}:
            types = set(declared_types(declared) or TYPES)
            mistaken = types - {"string"} - values.free_types()
        texts = filter(None, (self._texts.body(each, mistaken) for each in values.strings))
        bodies = [f"{self._quote} ({text})" for text in texts]
        for kind, each in values.by_type():
            match kind:
                case "enum":
                    bodies += filter(None, map(self._written, each["enum"]))
                case "null":
                    bodies.append('"null"')
                case "boolean":
                    bodies.append('"true" | "false"')
                case "integer" | "number":
                    bodies.append(self._rules.part(of_schema(each, self._param, COMPACT)))
                case _:
                    container = self.container(kind, each, declared, depth)
                    bodies += [] if container is None else [container]
        return bodies

    def container(
        self, kind: str, schema: dict[str, Any], declared: object, depth: int
    ) -> str | None:
        """A rule's body for a list or an object; None where none can be written."""
        if depth >= MAX_CONTAINERS:
            return None
        try:
            if kind == "array":
                return self._list(schema, declared, depth)
            return self._object(schema, declared, depth)
        except ShapeError as error:
            raise self._kinds.refusal(error.keyword, "cannot be held") from None

    def _list(self, schema: dict[str, Any], declared: object, depth: int) -> str | None:
        shape = list_shape(schema)
        first: list[str] = []
        for each in shape.first:
            item = None if each is False else self.value(each, None, depth + 1)
            if item is None:
                break
            first.append(item)
        rest = None
        if shape.rest is not False and shape.most != 0:
            rest = self.value(shape.rest, declared_item(declared), depth + 1)
        items = items_rule(self._rules, shape, first, rest, ",")
        return None if items is None else f'"[" {items} "]"'

    def _object(self, schema: dict[str, Any], declared: object, depth: int) -> str | None:
        shape = object_shape(schema)
        members: list[tuple[str, bool]] = []
        for name, each, required in shape.members:
            value = None
            if each is not False:
                self.check_name(name)
                value = self.value(each, declared_member(declared, name), depth + 1)
            if value is not None:
                members.append((f"{quoted(name + ':')} {value}", required))
            elif required:
                return None
        inner = members_rule(self._rules, members, ",")
        if not shape.members:
            further = (
                declared.get("additionalProperties") if isinstance(declared, Mapping) else None
            )
            value = None
            if shape.rest is not False:
                value = self.value(shape.rest, further, depth + 1)
            if value is None:
                return None if shape.least else '"{}"'
            member = f'{ANY_NAME} ":" {value}'
            body = f'{member} ("," {member})*'
            inner = self._rules.rule(body if shape.least else f"({body})?")
        return f'"{{" {inner} "}}"'

    def _written(self, value: Any) -> str | None:
        """A value of an enumeration, not a string; None if it cannot be read."""
        if isinstance(value, str):
            mistaken = TYPES if self._quoted_json else ()
            if not self._texts.is_plain(value, mistaken):
                return None
            return " ".join(filter(None, (self._quote, quoted(value), self._quote)))
        if value is None or isinstance(value, bool):
            return quoted(WORDS[value])
        if isinstance(value, list):
            items = [self._written(each) for each in value]
            return self._joined("[", items, "]")
        if isinstance(value, dict):
            members: list[str | None] = []
            for key, each in value.items():
                self.check_name(key)
                inner = self._written(each)
                members.append(None if inner is None else f"{quoted(key + ':')} {inner}")
            return self._joined("{", members, "}")
        return quoted(json.dumps(value))

    def _joined(self, begin: str, parts: list[str | None], end: str) -> str | None:
        if None in parts:
            return None
        inner = f" {quoted(',')} ".join(part for part in parts if part is not None)
        return f"{quoted(begin)} {inner} {quoted(end)}"
