"""The parameters of a call as tags, by a schema: required ones and optional ones, in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.answer_formats.layouts.call_layout import TaggedLayout
from headrace.errors import RequestError, shown
from headrace.structured.composition import Composition, slashed
from headrace.structured.free_text import free_text
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA
from headrace.structured.tools.parameters import Parameter, parameters_of
from headrace.structured.tools.tagged_values import TaggedValues

_ANY_NAME = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"


def tagged_parameters(
    rules: Composition, layout: TaggedLayout, schema: Mapping[str, Any] | None, param: str
) -> str:
    """A rule for all parameters of a call; None for any of them.

    Raises RequestError for a parameter that cannot be written so.
    """
    if schema is None:
        text = layout.types.get("string", "")
        value = f"{free_text(rules, (layout.value_end,))} {rules.text(layout.value_end)}"
        if layout.not_first:
            first = rules.rule(slashed(f"[^{layout.not_first}]"), terminal=True)
            value = f"({first} {value} | {rules.text(layout.value_end)})"
        before_value = layout.before_value + text
        tag = f"{rules.text(layout.before_key)} {_ANY_NAME} {rules.text(before_value)}"
        return rules.rule(f"({tag} {value} {rules.text(layout.after_value)})*")
    root, parameters = parameters_of(schema, f"{param}.parameters")
    values = TaggedValues(rules, root, layout, f"{param}.parameters")
    out: list[str] = []
    for parameter in parameters:
        _check_name(parameter, layout, f"{param}.parameters")
        padding = "" if layout.types else layout.padding
        key = f"{layout.before_key}{parameter.name}{layout.before_value}{padding}"
        value = rules.rule(values.value(parameter.name, parameter.schema, parameter.declared))
        tag = f"{rules.text(key)} {value} {rules.text(layout.after_value)}"
        out.append(tag if parameter.required else f"({tag})?")
    return rules.rule(" ".join(out) or '""')


def _check_name(parameter: Parameter, layout: TaggedLayout, param: str) -> None:
    """Raises RequestError for a name that would end its tag or be read as another one."""
    name = parameter.name
    ends = layout.before_value[0]
    # Within quotes a name is unescaped as in XML, and some readers end it at other marks too.
    marks = "&'>" if ends == '"' else ""
    unreadable = ends in name or any(mark in name for mark in marks)
    if not name or name.strip(" \t\r\n\"'") != name or unreadable or len(name) > 200:
        raise RequestError(
            f"{param}: the property {shown(name)} cannot be written as a tag, as calls of this "
            "model are; rename it",
            param=param,
            code=UNSUPPORTED_SCHEMA,
        )
