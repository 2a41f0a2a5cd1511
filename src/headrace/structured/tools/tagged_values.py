"""The values of parameters that are written between tags: texts without quotes, and JSON.

A reader tells by the parameter's types (`declared_types`) whether a text is JSON or a string. So
where a schema allows strings beside other types it restricts, no string may begin as one of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.answer_formats.layouts.call_layout import TYPES, TaggedLayout
from headrace.answer_formats.readers.tagged_calls import declared_types, types_of
from headrace.structured.composition import Composition
from headrace.structured.json_schema.grammar import SPACED, of_schema
from headrace.structured.tools.marked_texts import MarkedTexts
from headrace.structured.tools.parameters import standing_alone
from headrace.structured.tools.value_kinds import ValueKinds, listed


class TaggedValues:
    """The values of one tool's parameters, from behind the key up to and including the mark that
    ends each."""

    def __init__(
        self, rules: Composition, root: Mapping[str, Any], layout: TaggedLayout, param: str
    ) -> None:
        """root: the schema of all parameters, walked. param: where the request has the schema."""
        self._rules = rules
        self._root = root
        self._param = param
        self._end = layout.padding + layout.value_end
        self._padding = layout.padding
        self._types = layout.types
        self._kinds = ValueKinds(root, param)
        self._texts = MarkedTexts(
            rules,
            layout.value_end,
            self._kinds.refusal,
            padding=layout.padding,
            not_first=layout.not_first,
            own_lines=True,
        )

    def value(self, name: str, schema: Any, declared: object) -> str:
        """A rule's body for a parameter's value and its end.

        declared: the schema as the reader has it. RequestError where a value cannot be written.
        """
        values = self._kinds.of(schema)
        read_as = set(declared_types(declared) or TYPES)
        # What reads as JSON of a type that is free is as valid as the string would have been.
        mistaken = read_as - {"string"} - values.free_types()
        strings = list(filter(None, (self._texts.body(each, mistaken) for each in values.strings)))
        free = bool(values.strings) and not values.strings[0] and not self._types
        others = [each for each in values.others if not (free and each.keys() <= {"type"})]
        if not self._types:
            bodies = [*strings, *map(self._json, others)]
        else:
            bodies = [f"{self._typed('string')} ({' | '.join(strings)})"] if strings else []
            bodies += (body for other in others for body in self._typed_json(other))
        if not bodies:
            raise self._kinds.refusal(name, "allows no value that can be written between tags")
        return " | ".join(bodies)

    def _typed(self, type: str) -> str:
        """What is written before a value of a type."""
        return self._rules.text(self._types[type] + self._padding)

    def _typed_json(self, schema: dict[str, Any]) -> list[str]:
        """Bodies for a schema of values that are not strings, by what is written before each."""
        by_mark: dict[str, list[str]] = {}
        for type in listed(schema.get("type", TYPES)):
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
        schema = standing_alone(schema, self._root)
        part = self._rules.part(of_schema(schema, self._param, SPACED))
        return f"{part} {self._rules.text(self._end)}"
