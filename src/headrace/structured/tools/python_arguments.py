"""Keyword arguments as Python writes them: literals by a schema, True, False and None among them.

What a schema says beyond types, enumerations, lists and properties is written as JSON, which the
reader of such calls takes as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition, quoted
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import SPACED, of_schema
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA
from headrace.structured.tools.parameters import parameters_of, standing_alone
from headrace.structured.tools.value_shapes import members_rule

_NAME = re.compile(r"[\w.\-]{1,200}")
"""Names of keywords that the reader takes."""
_ANY_NAME = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
_ANNOTATIONS = frozenset({"$comment", "default", "description", "examples", "title"})
_MAX_DEPTH = 16
_WORDS = {True: "True", False: "False", None: "None"}


def python_arguments(rules: Composition, schema: Mapping[str, Any] | None, param: str) -> str:
    """A rule for all keyword arguments of a call; None for any of them.

    Raises RequestError for an argument that cannot be written so.
    """
    if schema is None:
        value = rules.part(of_schema({}, param, SPACED))
        return rules.rule(f'({_ANY_NAME} "=" {value} (", " {_ANY_NAME} "=" {value})*)?')
    root, parameters = parameters_of(schema, param)
    members: list[tuple[str, bool]] = []
    for parameter in parameters:
        if not _NAME.fullmatch(parameter.name):
            raise RequestError(
                f"{param}: the property {shown(parameter.name)} cannot be the name of an argument, "
                "as calls of this model are written; rename it",
                param=param,
                code=UNSUPPORTED_SCHEMA,
            )
        value = _Literals(rules, root, param).value(parameter.schema, 0)
        members.append((f"{quoted(parameter.name + '=')} {value}", parameter.required))
    return members_rule(rules, members, ", ")


class _Literals:
    """The literals of one tool's arguments."""

    def __init__(self, rules: Composition, root: Mapping[str, Any], param: str) -> None:
        self._rules = rules
        self._root = root
        self._param = param

    def value(self, schema: Any, depth: int) -> str:
        """A rule for a value."""
        schema = {} if schema is True else schema
        said = {key: schema[key] for key in schema if key not in _ANNOTATIONS}
        body = "" if depth > _MAX_DEPTH else self._literal(said, depth)
        return self._rules.rule(body) if body else self._json(said)

    def _literal(self, schema: dict[str, Any], depth: int) -> str:
        """A rule's body for a schema that can be written out, "" for another."""
        for keyword in ("anyOf", "oneOf"):
            if schema.keys() == {keyword}:
                options = [option for option in schema[keyword] if option is not False]
                return " | ".join(self.value(option, depth + 1) for option in options)
        if schema.keys() <= {"enum", "type"} and isinstance(schema.get("enum"), list):
            return " | ".join(quoted(_written(value)) for value in schema["enum"])
        match schema.get("type"):
            case list() as names if names:
                alone = ({**schema, "type": name} for name in names)
                return " | ".join(self.value(each, depth + 1) for each in alone)
            case "boolean" if schema.keys() == {"type"}:
                return '"True" | "False"'
            case "null" if schema.keys() == {"type"}:
                return '"None"'
            case "array" if schema.keys() <= {"type", "items"} and "items" in schema:
                if schema["items"] is False:
                    return '"[]"'
                item = self.value(schema["items"], depth + 1)
                return f'"[" ({item} (", " {item})*)? "]"'
            case "object" if (
                schema.keys() <= {"type", "properties", "required", "additionalProperties"}
                and schema.get("additionalProperties") is False
                and {*schema.get("required", ())} <= {*schema.get("properties", ())}
            ):
                required = schema.get("required", ())
                members = [
                    (f"{quoted(json.dumps(name, ensure_ascii=False) + ': ')} "
                     f"{self.value(inner, depth + 1)}", name in required)
                    for name, inner in schema.get("properties", {}).items()
                    if inner is not False
                ]  # fmt: skip
                return f'"{{" {members_rule(self._rules, members, ", ")} "}}"'
        return ""

    def _json(self, schema: dict[str, Any]) -> str:
        schema = standing_alone(schema, self._root)
        grammar: Grammar = of_schema(schema, self._param, SPACED)
        return self._rules.part(grammar)


def _written(value: Any) -> str:
    """A value as Python writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_written(key)}: {_written(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    return json.dumps(value, ensure_ascii=False)
