"""No number passes that a bound excludes, whichever of the schemas for one value states it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.json_schema.walk import check_schema
from headrace.structured.request import grammar_of
from tools.structured.language import Language

ABOVE_ONE = {"exclusiveMinimum": 1}
LOW = {"maximum": 1.5}
NUMBER = {"type": "number"}
CLOSED = {"type": "object", "required": ["a"], "additionalProperties": False}
TOGETHER: dict[str, tuple[dict[str, Any], str]] = {
    "one schema": ({**NUMBER, **ABOVE_ONE, **LOW}, "%s"),
    "draft 4": ({**NUMBER, **LOW, "minimum": 1, "exclusiveMinimum": True}, "%s"),
    "beside allOf": ({**NUMBER, **ABOVE_ONE, "allOf": [LOW]}, "%s"),
    "within allOf": ({**NUMBER, "allOf": [LOW, ABOVE_ONE]}, "%s"),
    "beside anyOf": ({**NUMBER, **LOW, "anyOf": [ABOVE_ONE, {"type": "null"}]}, "%s"),
    "beside a reference": (
        {**ABOVE_ONE, "$ref": "#/$defs/low", "$defs": {"low": {**NUMBER, **LOW}}}, "%s",
    ),
    "a property": (
        {"allOf": [{**CLOSED, "properties": {"a": {**NUMBER, **ABOVE_ONE}}},
                   {"properties": {"a": LOW}}]},
        '{"a":%s}',
    ),
    "any property": (
        {"allOf": [{**CLOSED, "properties": {"a": {**NUMBER, **ABOVE_ONE}}},
                   {"additionalProperties": LOW}]},
        '{"a":%s}',
    ),
    "items": (
        {"type": "array", "items": {**NUMBER, **LOW}, "allOf": [{"prefixItems": [ABOVE_ONE]}]},
        "[%s]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_an_excluded_number_does_not_pass_where_the_bound_behind_it_is_near(name: str) -> None:
    schema, form = TOGETHER[name]
    grammar = grammar_of({"guided_json": schema})
    assert grammar is not None
    language = Language(grammar)
    assert {each: language.has(form % each) for each in ("1", "1.0", "1.25", "1.6")} == {
        "1": False, "1.0": False, "1.25": True, "1.6": False,
    }  # fmt: skip


def test_zero_is_refused_where_another_schema_for_the_value_has_the_near_bound() -> None:
    for schema in (
        {**NUMBER, "exclusiveMinimum": 0, "maximum": 0.5},
        {**NUMBER, "minimum": -0.5, "allOf": [{"exclusiveMaximum": 0}]},
        {"$ref": "#/$defs/low", "exclusiveMinimum": 0, "$defs": {"low": {"exclusiveMaximum": 0.5}}},
    ):
        with pytest.raises(RequestError, match="is 0 with the other bound less than 1 away"):
            check_schema(schema, "schema")
    half, above_zero = {**NUMBER, "maximum": 0.5}, {**NUMBER, "exclusiveMinimum": 0}
    for schema in (
        {"properties": {"a": half, "b": above_zero, "c": {"allOf": [{"type": "null"}]}}},
        {"allOf": [{"properties": {"a": half}}, {"properties": {"b": above_zero}}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"prefixItems": [half, above_zero]}}},
        {**above_zero, "allOf": [{"maximum": 1}]},
    ):
        check_schema(schema, "schema")
