"""The parameters of a function one by one, for formats that do not write them as one JSON object.

What a schema says of the object as a whole has then to be one of a few things; all else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import RequestError, shown
from headrace.structured.json_schema.fault import moved, schemas_of
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA, check_schema

_PER_OBJECT = (
    "$ref", "allOf", "anyOf", "const", "enum", "maxProperties", "minProperties", "oneOf",
    "patternProperties",
)  # fmt: skip
_DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A property of a function's arguments."""

    name: str
    """The property's name."""
    schema: Any
    """What its value has to be: a schema that was walked, or true."""
    declared: object
    """Its schema as the request has it, by which an answer's reader knows its type."""
    required: bool
    """Whether a call has to have it."""


def parameters_of(
    schema: Mapping[str, Any], param: str
) -> tuple[Mapping[str, Any], list[Parameter]]:
    """The walked schema, and the parameters in the order in which calls have them.

    Raises RequestError for a schema that is more than its properties.
    """
    root = check_schema(dict(schema), param)
    required = root.get("required", [])
    for keyword in _PER_OBJECT:
        harmless = keyword == "minProperties" and root.get(keyword, 0) <= len(required)
        if keyword in root and not harmless:
            raise RequestError(
                f"{param}: the keyword {keyword} at #/{keyword} is not supported beside the "
                "properties of a call, as calls of this model are written; omit it",
                param=param,
                code=UNSUPPORTED_SCHEMA,
            )
    properties: dict[str, Any] = dict(root.get("properties", {}))
    for name in required:
        properties.setdefault(name, root.get("additionalProperties", True))
    declared = schema.get("properties", {})
    parameters: list[Parameter] = []
    for name, value in properties.items():
        if value is False and name in required:
            raise RequestError(
                f"{param}: the property {shown(name)} is required, and no value is allowed for it",
                param=param,
                code=UNSUPPORTED_SCHEMA,
            )
        if value is not False:
            parameters.append(Parameter(name, value, declared.get(name), name in required))
    return root, parameters


def standing_alone(schema: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """A schema within all of a function's as one of its own, whose references lead where they did.

    Both were walked. Where all references are to definitions, these alone are taken along.
    """
    if not any("$ref" in each for _, each in schemas_of(schema)):
        return schema
    references = (each["$ref"] for _, each in schemas_of(dict(root)) if "$ref" in each)
    shared = {key: root[key] for key in _DEFINITIONS if key in root}
    to_definitions = tuple(f"#/{key}/" for key in shared)
    if schema.keys().isdisjoint(_DEFINITIONS) and all(
        reference.startswith(to_definitions) for reference in references
    ):
        return {**shared, **schema}
    alone = {key: value for key, value in moved(schema).items() if key not in _DEFINITIONS}
    dialect = {key: root[key] for key in ("$schema",) if key in root}
    return {**dialect, **alone, "$defs": {"whole": moved(dict(root))}}
