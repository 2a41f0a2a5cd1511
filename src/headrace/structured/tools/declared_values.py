"""What formats share that write strings without quotes and values within one another.

How a reader tells the kinds of values apart depends on the schema as it has it (`declared`), which
goes along with the schema that was walked.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.answer_formats.layouts.call_layout import TYPES
from headrace.answer_formats.readers.tagged_calls import declared_member, declared_types
from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA
from headrace.structured.tools.marked_texts import MarkedTexts
from headrace.structured.tools.parameters import Parameter
from headrace.structured.tools.value_kinds import ValueKinds, Values

MAX_CONTAINERS = 16
"""Lists and objects within one another; readers take 64, and each level has rules of its own."""
_MAX_NAME_CHARS = 200


class DeclaredValues(ABC):
    """The values of one tool's arguments, each made into a rule once."""

    def __init__(self, rules: Composition, root: Mapping[str, Any], mark: str, param: str) -> None:
        """root: the schema of all arguments, walked. mark: what ends a text, which no text has.
        param: where the request has the schema."""
        self._rules = rules
        self._root = root
        self._mark = mark
        self._mark_rule = rules.text(mark)
        self._kinds = ValueKinds(root, param)
        self._refusal = self._kinds.refusal
        self._texts = MarkedTexts(rules, mark, self._refusal)
        self._param = param
        self._made: dict[tuple[str, str, int], str | None] = {}

    def value(self, schema: Any, declared: object, depth: int) -> str | None:
        """A rule for a value of a schema; None where none can be written.

        declared: the schema as the reader has it. depth: containers around it.
        """
        key = (json.dumps(schema), json.dumps(declared), depth)
        if key not in self._made:
            bodies = self._bodies(schema, declared, depth)
            self._made[key] = self._rules.rule(" | ".join(bodies)) if bodies else None
        return self._made[key]

    @abstractmethod
    def _bodies(self, schema: Any, declared: object, depth: int) -> list[str]:
        """The bodies of a value's rule, any of which it may be."""

    def members(
        self,
        schema: Mapping[str, Any],
        parameters: Sequence[Parameter],
        written: Callable[[str, Any, object, int], str | None],
    ) -> Iterator[tuple[str, bool]]:
        """The parameters that can be written, and whether each is required.

        written: one of them as a rule's body, by its name, schema, declared schema and depth.
        Raises RequestError for a required one of which no value can be.
        """
        for parameter in parameters:
            declared = declared_member(schema, parameter.name)
            body = written(parameter.name, parameter.schema, declared, 1)
            if body is not None:
                yield body, parameter.required
            elif parameter.required:
                raise self._refusal(parameter.name, "allows no value that can be written")

    def _mistaken(self, values: Values, declared: object) -> set[str]:
        """Types that the reader would take a text for, where the text is the only valid value.

        What reads as JSON of a type that is free is as valid as the string would have been.
        """
        return set(declared_types(declared) or TYPES) - {"string"} - values.free_types()

    def _check_name(self, name: str, around: str | None, unreadable: bool, how: str) -> None:
        """Raises RequestError for a name that would be read as another one.

        around: characters that a reader strips; None for all white space. how: names are written.
        """
        if not name or name.strip(around) != name or unreadable or len(name) > _MAX_NAME_CHARS:
            raise RequestError(
                f"{self._param}: the property {shown(name)} cannot be written {how}, as calls of "
                "this model are; rename it",
                param=self._param,
                code=UNSUPPORTED_SCHEMA,
            )
