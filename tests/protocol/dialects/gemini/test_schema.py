"""JSON schemas as Gemini takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.gemini.request.schema import json_schema

Schema = dict[str, Any]


def converted(schema: Schema) -> Schema:
    """What came out, where nothing was lost and the client's own was not touched."""
    before = json.dumps(schema)
    made, lost = json_schema(schema, "tools")
    assert lost == ()
    assert json.dumps(schema) == before
    return made


def test_what_gemini_takes_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "title": "T",
        "description": "d",
        "properties": {
            "a": {"type": ["string", "null"], "minLength": 1, "maxLength": 9, "pattern": "^a"},
            "b": {"type": "array", "items": {"type": "number", "minimum": 0.5, "maximum": 2}},
            "c": {"type": "array", "prefixItems": [{"type": "number"}], "uniqueItems": True},
            "d": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "e": {"type": "string", "enum": ["x", "y"], "format": "date-time"},
            "f": {"type": "object", "additionalProperties": {"type": "string"}},
            "type": {"type": "string", "description": "a property called type"},
        },
        "required": ["a"],
        "additionalProperties": False,
        "propertyOrdering": ["b", "a"],
    }
    assert converted(schema) == schema


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": "number", "const": 2}, {"type": "number", "enum": [2]}),
        ({"const": None}, {"type": "null"}),
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"enum": [1, 2]}, {"type": "integer", "enum": [1, 2]}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "exclusiveMaximum": 9.0}, {"type": "integer", "maximum": 8}),
        (
            {"type": "integer", "minimum": 5, "exclusiveMinimum": 0},
            {"type": "integer", "minimum": 5},
        ),
        (
            {"type": "integer", "minimum": 5, "exclusiveMinimum": True},
            {"type": "integer", "minimum": 6},
        ),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "Format: uri"}),
        (
            {"type": "string", "format": "uri", "description": "where"},
            {"type": "string", "description": "where (format: uri)"},
        ),
        ({"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}),
        ({"items": True}, {"items": {}}),
        ({"allOf": [{"type": "string"}]}, {"type": "string"}),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$comment": "c",
                "examples": [1],
                "deprecated": True,
                "x-order": 1,
                "type": "string",
            },
            {"type": "string"},
        ),
    ],
    ids=str,
)
def test_said_in_other_words(schema: Schema, made: Schema) -> None:
    assert converted(schema) == made


def test_references_stay_references() -> None:
    schema = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/Node"}, "v": {"const": 1}},
            },
            "Unused": {"type": "string"},
        },
    }
    made = converted(schema)
    assert made["properties"] == {"root": {"$ref": "#/$defs/Node"}}
    assert made["$defs"] == {
        "Node": {
            "type": "object",
            "properties": {
                "next": {"$ref": "#/$defs/Node"},
                "v": {"type": "integer", "enum": [1]},
            },
        }
    }


def test_other_pointers_are_moved_to_defs() -> None:
    schema = {
        "properties": {
            "a": {"$ref": "#/definitions/a~1b%20c"},
            "b": {"$ref": "#/properties/c/items"},
            "c": {"items": {"type": "integer"}},
            "d": {"$ref": "#"},
        },
        "definitions": {"a/b c": {"type": "string"}},
    }
    made = converted(schema)
    links = {name: one.get("$ref") for name, one in made["properties"].items()}
    assert links["a"] == "#/$defs/a_1b_c"
    assert made["$defs"]["a_1b_c"] == {"type": "string"}
    assert made["$defs"][links["b"].removeprefix("#/$defs/")] == {"type": "integer"}
    assert made["$defs"]["root"]["properties"] == made["properties"]


def test_two_targets_of_one_name_keep_apart() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/definitions/x"}},
        "$defs": {"x": {"type": "string"}},
        "definitions": {"x": {"type": "number"}},
    }
    made = converted(schema)
    found = [made["$defs"][one["$ref"][8:]]["type"] for one in made["properties"].values()]
    assert found == ["string", "number"]


def test_words_beside_a_reference_are_kept() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/x", "description": "d"}},
        "$defs": {"x": {"type": "string"}},
    }
    assert converted(schema)["properties"]["a"] == {
        "anyOf": [{"$ref": "#/$defs/x"}],
        "description": "d",
    }


def test_a_reference_at_the_root_is_its_target() -> None:
    schema = {
        "$ref": "#/$defs/x",
        "title": "T",
        "$defs": {"x": {"type": "object", "properties": {"next": {"$ref": "#/$defs/x"}}}},
    }
    made = converted(schema)
    assert made["type"] == "object"
    assert made["title"] == "T"
    assert made["$defs"]["x"]["properties"] == {"next": {"$ref": "#/$defs/x"}}


def test_all_of_becomes_one_object() -> None:
    schema = {
        "allOf": [
            {"$ref": "#/$defs/x"},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ],
        "required": ["c"],
        "$defs": {"x": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
    made = converted(schema)
    assert made == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["c", "b"],
    }


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"not": {"type": "string"}}, ("not",)),
        ({"if": {}, "then": {}, "else": {}}, ("else", "if", "then")),
        ({"properties": {"a": {"multipleOf": 2}}}, ("multipleOf",)),
        ({"type": "number", "exclusiveMinimum": 0}, ("exclusiveMinimum",)),
        ({"enum": [{"a": 1}]}, ("enum",)),
        ({"const": True}, ("const",)),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, ("allOf",)),
        ({"items": False}, ("false",)),
        ({"made up": 1}, ("made up",)),
    ],
    ids=str,
)
def test_what_is_lost_is_told(schema: Schema, lost: tuple[str, ...]) -> None:
    assert json_schema(schema, "tools")[1] == lost


def deep(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "https://example.com/schema.json"}}},
        {"properties": {"a": {"$ref": "#/$defs/gone"}}},
        {"properties": {"a": {"$ref": "#anchor"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        deep(300),
    ],
    ids=["remote", "dangling", "anchor", "circle", "all of itself", "deep"],
)
def test_broken_schemas_are_refused(schema: Schema) -> None:
    with pytest.raises(RequestError) as refused:
        json_schema(schema, "output")
    assert refused.value.param == "output"


def test_a_schema_that_grows_without_end_is_refused() -> None:
    doubled = {f"n{at}": {"allOf": [{"$ref": f"#/$defs/n{at + 1}"}] * 2} for at in range(40)}
    schema = {"$ref": "#/$defs/n0", "$defs": {**doubled, "n40": {"type": "string"}}}
    with pytest.raises(RequestError, match="more than"):
        json_schema(schema, "tools")


def test_a_long_chain_of_references_is_no_deep_one() -> None:
    chain = {f"n{at}": {"items": {"$ref": f"#/$defs/n{at + 1}"}} for at in range(3000)}
    schema = {"$ref": "#/$defs/n0", "$defs": {**chain, "n3000": {"type": "string"}}}
    assert len(converted(schema)["$defs"]) == 3000


@pytest.mark.parametrize("odd", [1, "a", None, [], [1], {"a": 1}, True], ids=str)
@pytest.mark.parametrize(
    "keyword",
    [
        "type", "properties", "items", "prefixItems", "anyOf", "allOf", "$ref", "$defs", "enum",
        "const", "required", "additionalProperties", "format", "nullable", "exclusiveMinimum",
        "minimum", "description",
    ],
)  # fmt: skip
def test_nonsense_is_an_error_of_the_request_or_passed_on(keyword: str, odd: Any) -> None:
    for schema in ({keyword: odd}, {"properties": {"p": {keyword: odd, "description": "d"}}}):
        try:
            json_schema(schema, "tools")
        except RequestError:
            assert keyword == "$ref"
