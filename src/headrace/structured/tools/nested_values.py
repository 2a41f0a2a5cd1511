"""Arguments as elements named after them, nested where a value has members: MiniMax-M3.

    P<user>42P</user>P<items>P<item>penP</item>P</items>

P is what every tag begins with. How a reader tells a list, an object and a text apart depends on
the schema as it has it (`declared`). What it would take for something else, and what has members
of unknown names, is written as JSON, which it reads too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.answer_formats.layouts.call_layout import NestedLayout
from headrace.answer_formats.readers.nested_calls import may_be_list
from headrace.answer_formats.readers.tagged_calls import (
    declared_item,
    declared_member,
    declared_types,
)
from headrace.errors import RequestError
from headrace.structured.composition import Composition, quoted
from headrace.structured.json_schema.grammar import SPACED, of_schema
from headrace.structured.tools.declared_values import MAX_CONTAINERS, DeclaredValues
from headrace.structured.tools.parameters import parameters_of, standing_alone
from headrace.structured.tools.value_shapes import (
    NOTHING,
    ListShape,
    ObjectShape,
    ShapeError,
    items_rule,
    list_shape,
    members_rule,
    object_shape,
)


def nested_elements(
    rules: Composition, layout: NestedLayout, schema: Mapping[str, Any], param: str, *, held: bool
) -> str:
    """A rule for all elements of a call, which have the names of a schema's properties: what ends
    an element repeats its name.

    held: a name that cannot be written is refused; it is omitted where arguments are not held.
    Raises RequestError for a schema whose values cannot be written so.
    """
    root, parameters = parameters_of(schema, param)
    values = NestedValues(rules, root, layout, param)
    if not held:
        parameters = [each for each in parameters if values.can_name(each.name)]
    members = values.members(schema, parameters, values.element)
    out = [element if required else f"({element})?" for element, required in members]
    return rules.rule(" ".join(out) or NOTHING)


class NestedValues(DeclaredValues):
    """The elements of one tool's arguments.

    The rule of a value goes on to where the next tag has its "<", since that is the mark which ends
    a text.
    """

    def __init__(
        self, rules: Composition, root: Mapping[str, Any], layout: NestedLayout, param: str
    ) -> None:
        """root: the schema of all arguments, walked. param: where the request has the schema."""
        super().__init__(rules, root, f"{layout.prefix}<", param)
        self._item = layout.item

    def can_name(self, name: str) -> bool:
        """Whether an element can have a name."""
        try:
            self._check_tag(name)
        except RequestError:
            return False
        return True

    def _check_tag(self, name: str) -> None:
        unreadable = ">" in name or name.startswith("/") or self._mark in name
        self._check_name(name, None, unreadable, "as a tag")

    def element(self, name: str, schema: Any, declared: object, depth: int) -> str | None:
        """A rule's body for an element with a value of a schema; None where none can be written.

        declared: the schema as the reader has it. depth: elements around it, the call being one.
        """
        self._check_tag(name)
        value = self.value(schema, declared, depth)
        if value is None:
            return None
        return f"{self._mark_rule} {quoted(f'{name}>')} {value} {quoted(f'/{name}>')}"

    def _bodies(self, schema: Any, declared: object, depth: int) -> list[str]:
        values = self._kinds.of(schema)
        mistaken = self._mistaken(values, declared)
        bodies = [*filter(None, (self._texts.body(each, mistaken) for each in values.strings))]
        free = bool(values.strings) and not values.strings[0]
        for kind, each in values.by_type():
            nested = None
            if kind in ("array", "object") and depth < MAX_CONTAINERS:
                nested = self._nested(kind, each, declared, depth)
            if nested is not None:
                bodies.append(nested)
            elif not (free and each.keys() <= {"type"}):  # which is among the texts
                bodies.append(self._json(each))
        return bodies

    def _nested(
        self, kind: str, schema: dict[str, Any], declared: object, depth: int
    ) -> str | None:
        """A list or an object as elements; None where it is to be written as JSON."""
        try:
            if kind == "array":
                return self._list(list_shape(schema), declared, depth)
            return self._object(object_shape(schema), declared, depth)
        except ShapeError:
            return None

    def _list(self, shape: ListShape, declared: object, depth: int) -> str | None:
        if not may_be_list(declared) or shape.first or shape.most == 0 or shape.rest is False:
            return None
        item = self.element(self._item, shape.rest, declared_item(declared), depth + 1)
        if item is None:
            return None
        some = replace(shape, least=max(1, shape.least))
        items = items_rule(self._rules, some, (), self._rules.rule(item), "")
        body = f"{items} {self._mark_rule}"
        if shape.least:
            return body
        empty = (
            self._mark_rule if self._reads_empty(declared, "array") else f'"[]" {self._mark_rule}'
        )
        return f"{body} | {empty}"

    def _object(self, shape: ObjectShape, declared: object, depth: int) -> str | None:
        if not isinstance(declared, Mapping) or may_be_list(declared) or not shape.members:
            return None
        names = {name for name, _, _ in shape.members}
        required = any(required for _, _, required in shape.members)
        if not required and not self._reads_empty(declared, "object"):
            return None
        if self._item in names and "items" in declared:
            return None
        members: list[tuple[str, bool]] = []
        for name, each, required in shape.members:
            element = None
            if each is not False:
                element = self.element(name, each, declared_member(declared, name), depth + 1)
            if element is None and required:
                return None
            if element is not None:
                members.append((element, required))
        return f"{members_rule(self._rules, members, '')} {self._mark_rule}"

    def _reads_empty(self, declared: object, kind: str) -> bool:
        """Whether an element without anything in it is a list, or an object."""
        types = declared_types(declared)
        return kind in types and "string" not in types

    def _json(self, schema: dict[str, Any]) -> str:
        schema = standing_alone(schema, self._root)
        return f"{self._rules.part(of_schema(schema, self._param, SPACED))} {self._mark_rule}"
