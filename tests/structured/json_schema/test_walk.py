"""What is refused of a schema, by keyword and pointer, and what is written out in full."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.json_schema.walk import MAX_DEPTH, MAX_SCHEMAS, UNSUPPORTED, check_schema
from tests.structured.matching import Language


def _refusal(schema: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check_schema(schema, "guided_json")
    assert caught.value.param == "guided_json"
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "reference"),
    [
        ("^x", "#/patternProperties/^x"),
        ("^x", "#/patternProperties/%5ex"),
        ("^x.", "#/patternProperties/%5Ex."),
        ("^\\s/~%|é", "#/patternProperties/^\\s~1~0%25|é"),
    ],
)
def test_a_reference_leads_to_what_the_name_of_an_expression_has(
    pattern: str, reference: str
) -> None:
    schema = {"type": "object", "patternProperties": {pattern: {"type": "integer"}},
              "properties": {"a": {"$ref": reference}}, "required": ["a"]}  # fmt: skip
    grammar = of_schema(schema, "schema")
    language = Language(grammar)
    assert language.error == ""
    assert language.has_value({"a": 1})
    assert not language.has_value({"a": "s"})
    assert of_schema(grammar.text, "schema") == grammar


@pytest.mark.parametrize("name", ["a b", 'a"b', "a<b", "é", "a#b", "a[b]", "a?b", "a'b", "^", ""])
def test_a_reference_may_have_characters_that_no_uri_has(name: str) -> None:
    schema = {"type": "array", "items": {"$ref": f"#/$defs/{name}"},
              "$defs": {name: {"type": "integer"}}}  # fmt: skip
    language = Language(of_schema(schema, "schema"))
    assert language.error == ""
    assert language.has_value([1])
    assert not language.has_value(["s"])


def test_the_names_of_properties_are_not_rewritten_in_references() -> None:
    inner = {"properties": {"patternProperties": {"properties": {"a.b": {"type": "integer"}}}}}
    schema = {**inner, "items": {"$ref": "#/properties/patternProperties/properties/a.b"}}
    assert check_schema(schema, "schema") == schema


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_a_keyword_that_no_grammar_enforces_is_refused_with_its_pointer(keyword: str) -> None:
    inner = {"anyOf": [{"type": "string"}, {keyword: [1]}]}
    error = _refusal({"properties": {"a/b": inner}})
    assert error.code == "unsupported_schema"
    assert f"#/properties/a~1b/anyOf/1/{keyword} " in str(error)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"items": {"format": "ipv7"}}, "#/items/format "),
        ({"$ref": "https://example.com/schema"}, "#/$ref "),
        ({"$defs": {"a": {"$id": "b"}}}, "#/$defs/a/$id "),
        ({"$schema": "https://example.com/own"}, "#/$schema "),
        ({"minProperties": 2}, "#/minProperties "),
        ({"pattern": "^(?!a)"}, "#/pattern "),
        ({"pattern": "(?i)a"}, "#/pattern "),
        ({"pattern": "a\\x00b"}, "#/pattern "),
        ({"patternProperties": {"(?=a)": {}}}, "#/patternProperties "),
        ({"enum": ["a", ["b\x01"]]}, "#/enum "),
        ({"properties": {"a\x00": {}}}, "#/properties "),
        ({"const": 2**53 + 1}, "#/const "),
        ({"multipleOf": 123456789}, "#/multipleOf "),
        ({"allOf": [{"pattern": "a"}] * 3 + [{"format": "uri"}] * 4}, "#/allOf "),
        (
            {
                "$ref": "#/$defs/a",
                "pattern": "a",
                "$defs": {"a": {"allOf": [{"anyOf": [{"allOf": [{"pattern": "b"}] * 6}]}]}},
            },
            "#/$ref ",
        ),
        ({"minimum": 10**5000}, "#/minimum "),
        ({"type": "integer", "exclusiveMaximum": -(2**70)}, "#/exclusiveMaximum "),
        ({"minimum": 2**64, "maximum": 2**65}, "#/minimum "),
        ({"allOf": [{"multipleOf": 997}, {"multipleOf": 0.991}]}, "#/allOf/0/multipleOf "),
        ({"items": {"enum": [{"a": [10**400]}]}}, "#/items/enum "),
        ({"minimum": float("inf")}, "#/minimum "),
        ({"multipleOf": float("nan")}, "#/multipleOf "),
    ],
)
def test_a_value_that_is_not_enforced_is_refused_with_its_pointer(
    schema: dict[str, Any], where: str
) -> None:
    error = _refusal(schema)
    assert error.code == "unsupported_schema"
    assert where in str(error)


@pytest.mark.parametrize(
    "schema",
    [3, False, {"properties": []}, {"items": 1}, {"anyOf": {}}, {"$ref": "#/$defs/a"}, {"$ref": 1},
     {"default": {"a": {}}, "$ref": "#/default/a"}],
)  # fmt: skip
def test_what_is_not_a_schema_is_refused(schema: object) -> None:
    assert _refusal(schema).code == "invalid_schema"


def test_depth_and_number_of_schemas_are_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 40):
        deep = {"properties": {"a": deep}}
    assert _refusal(deep).code == "schema_too_large"
    wide = {"anyOf": [{"type": "null"}] * (MAX_SCHEMAS + 1)}
    assert _refusal(wide).code == "schema_too_large"


def test_the_schema_that_was_given_stays_as_it_is() -> None:
    given = {"items": {"pattern": "^.$", "uniqueItems": False}, "format": "date"}
    check_schema(given, "guided_json")
    assert given == {"items": {"pattern": "^.$", "uniqueItems": False}, "format": "date"}


def test_multiples_that_cannot_meet_are_counted_alone() -> None:
    apart = {"a": {"multipleOf": 997}, "b": {"multipleOf": 991}, "c": {"multipleOf": 5e6}}
    assert check_schema({"properties": apart}, "x")


def test_names_of_properties_that_look_like_keywords_are_names() -> None:
    assert check_schema({"properties": {"not": {"type": "null"}}, "enum": [{"if": 1}]}, "x")


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"format": "date"}, ["2024-02-29", "2000-02-29", "2023-12-31"],
         ["2023-02-29", "1900-02-29", "2023-04-31"]),
        ({"format": "date-time"}, ["2023-02-28T23:59:59Z"],
         ["2023-02-29T00:00:00Z", "1998-12-31T22:59:60Z"]),
        ({"format": "time", "pattern": "^2"}, ["23:59:59Z"], ["22:59:60Z", "12:00:00Z"]),
        ({"format": "hostname"}, ["a.example-1.org"], ["xn--X", ".".join(["a" * 63] * 4) + ".aa"]),
        ({"format": "email"}, ["a.b@c-d.org"], [f"a@{'b' * 64}.org", f"{'a' * 65}@b.org"]),
        ({"pattern": "^.$"}, ["a"], ["\n", "\r", "\u2028"]),
        ({"pattern": "^\\s$"}, [" ", "\ufeff", "\u3000"], ["\x85", "a"]),
        ({"pattern": "^[\\S]$"}, ["a"], [" ", "\ufeff"]),
        ({"pattern": "^[a&&b]$"}, ["a", "b", "&"], ["c"]),
        ({"pattern": "^[a[]$"}, ["a", "["], ["]"]),
        ({"pattern": "^[^\\x00-\\x1f]+$"}, ["ab"], ["", "\n"]),
    ],
)  # fmt: skip
def test_what_is_enforced_in_part_elsewhere_is_enforced_in_full(
    schema: dict[str, Any], valid: list[str], invalid: list[str]
) -> None:
    language = Language(of_schema({"type": "string", **schema}, "x"))
    assert language.error == ""
    assert [text for text in valid if not language.has_value(text)] == []
    assert [text for text in invalid if language.has_value(text)] == []


def test_a_property_has_one_spelling_and_is_not_given_twice() -> None:
    language = Language(of_schema({"properties": {"a": {"type": "integer"}}}, "x"))
    assert language.has('{"a":1,"b":"c"}')
    assert not language.has('{"a":1,"\\u0061":"x"}')
    assert not language.has('{"\\u0061":"x"}')
    assert not language.has('{"a": 1}')


def test_a_whole_number_that_is_excluded_is_not_an_answer_where_the_bounds_are_close() -> None:
    for schema, inside in (
        ({"exclusiveMinimum": 1, "maximum": 1.5}, "1.2"),
        ({"exclusiveMinimum": 7, "exclusiveMaximum": 7.25, "minimum": 0}, "7.1"),
        ({"minimum": -1.5, "exclusiveMaximum": -1}, "-1.2"),
    ):
        checked = check_schema({"type": "number", **schema}, "schema")
        language = Language(Grammar("json_schema", json.dumps(checked)))
        assert [text for text in ("1", "7", "-1", inside) if language.has(text)] == [inside]
    with pytest.raises(RequestError, match="less than 1 away"):
        check_schema({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "schema")
