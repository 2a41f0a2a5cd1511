"""Values of keywords: what the meta-schemas allow works, all else is refused by keyword, pointer,
value and what is expected; names of properties are names, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.compile import validate
from headrace.structured.json_schema.grammar import closed_schema, of_schema
from headrace.structured.json_schema.keywords import VALUES
from headrace.structured.json_schema.walk import UNSUPPORTED, check_schema
from tests.structured.matching import Language

WRONG: dict[str, list[Any]] = {
    "maxItems": [2.5, -1, "2", True, None],
    "minLength": [-1, 0.5, "a"],
    "minProperties": ["a", -1],
    "required": ["a", True, ["a", 3], {"a": True}],
    "minimum": ["3", True, None],
    "exclusiveMaximum": ["3", None],
    "multipleOf": ["2", 0, -1, True],
    "type": ["strin", [], ["string", 3], [{}], None, {}],
    "enum": [3, {}, "a"],
    "pattern": [3, None],
    "format": [3],
    "properties": [[], 3],
    "patternProperties": [[]],
    "$defs": [[]],
    "items": [3, "string", None],
    "additionalItems": [[]],
    "additionalProperties": [3, None, []],
    "prefixItems": [{}, 3],
    "anyOf": [{}],
    "allOf": [None],
    "$ref": [3],
}
NOT_EXPRESSIONS = [
    "(", "a)", "*a", "a**", "^+", "(|?)", "a{2,1}", "[b-a]", "[a", r"[\u0043-\u0041]",
    "a\\", r"\u12",
]  # fmt: skip


@pytest.mark.parametrize(
    ("keyword", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_value_of_another_kind_is_refused_by_name_place_and_what_is_expected(
    keyword: str, value: Any
) -> None:
    with pytest.raises(RequestError) as refused:
        check_schema({"properties": {"a": {keyword: value}}}, "schema")
    assert refused.value.code == "invalid_schema"
    expected = VALUES[keyword].expected
    assert str(refused.value) == (
        f"schema: '{keyword}' is {value!r}; it must be {expected}, at #/properties/a/{keyword}"
    )


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
@pytest.mark.parametrize("pattern", NOT_EXPRESSIONS)
def test_a_text_that_is_not_an_expression_is_refused_by_its_place(
    keyword: str, pattern: str
) -> None:
    value = pattern if keyword == "pattern" else {pattern: {}}
    with pytest.raises(RequestError, match="which is not an expression: it ") as refused:
        check_schema({"items": {keyword: value}}, "schema")
    assert refused.value.code == "invalid_schema"
    assert f"#/items/{keyword}" in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "valid", "invalid"),
    [
        (r"^a{2,3}b*?(?:c|d)+(?<n>e)?$", ["aac", "aaabde"], ["ac", "aae"]),
        (r"^\u{1F600}[\x41-\u0043]{2}\p{Lu}$", ["😀ABÉ"], ["😀Aé"]),
        (r"^[*+?{(|)^$.]+]}$", ["*+?{(|)^$.]}"], ["a]}"]),
        (r"^[^\S]+[\S!]$", [" \t!"], ["a!", "  "]),
    ],
)
def test_expressions_are_read_whole_and_alike_a_second_time(
    pattern: str, valid: list[str], invalid: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern}
    for walked in (schema, check_schema(schema, "schema")):
        language = Language(of_schema(walked, "schema"))
        assert [text for text in valid if not language.has_value(text)] == []
        assert [text for text in invalid if language.has_value(text)] == []


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "array", "minItems": 1.0, "maxItems": 2.0}, [1, 2], [1, 2, 3]),
        ({"type": "string", "maxLength": 1e0}, "a", "ab"),
        ({"type": "object", "minProperties": 1.0, "maxProperties": 1e0}, {"a": 1}, {}),
        ({"type": "string", "maxLength": 2**40, "minLength": 1}, "a", ""),
        ({"type": "array", "maxItems": 1e300}, [1], 1),
        ({"allOf": [], "prefixItems": [], "required": []}, 1, ...),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
    ],
)
def test_a_value_of_the_kind_is_held(schema: dict[str, Any], valid: Any, invalid: Any) -> None:
    grammar = of_schema(schema, "schema")
    validate(grammar)
    language = Language(grammar)
    assert language.has_value(valid)
    assert invalid is ... or not language.has_value(invalid)


@pytest.mark.parametrize("name", sorted({*VALUES, *UNSUPPORTED, "const"}))
def test_a_property_may_have_the_name_of_a_keyword(name: str) -> None:
    inner = {"type": "string", "pattern": "^.$"}
    text = {
        "type": "object", "properties": {name: inner}, "required": [name],
        "additionalProperties": False,
    }  # fmt: skip
    schema = {"type": "object", "properties": {name: text}, "$defs": {name: {"enum": [1]}}}
    for given in (schema, closed_schema(schema)):
        grammar = of_schema(given, "schema")
        validate(grammar)
        language = Language(grammar)
        assert language.has_value({name: {name: "a"}})
        assert not language.has_value({name: {name: "ab"}})
        assert not language.has_value({name: "a"})
    with pytest.raises(RequestError) as refused:
        check_schema({"properties": {name: {"pattern": "(?=a)"}}}, "schema")
    assert f"'pattern' at #/properties/{name}/pattern has" in str(refused.value)


def test_a_bound_within_a_property_with_the_name_of_a_keyword_is_excluded() -> None:
    number = {"type": "number", "exclusiveMinimum": 1}
    schema = {
        "type": "object",
        "properties": {"properties": {"type": "array", "items": number}},
        "allOf": [{"properties": {"properties": {"items": {"maximum": 1.5}}}}],
    }
    language = Language(of_schema(schema, "schema"))
    assert language.has('{"properties":[1.25]}')
    assert not language.has('{"properties":[1]}')
    assert not language.has('{"properties":[1.0]}')


def test_a_fault_that_compiling_shows_is_named_past_a_property_with_the_name_of_its_keyword() -> (
    None
):
    overlapping = {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 1}]}
    schema = {"properties": {"oneOf": {"properties": {"oneOf": overlapping}}}}
    with pytest.raises(RequestError, match=" #/properties/oneOf/properties/oneOf/oneOf "):
        validate(of_schema(schema, "schema"))


NODES = {
    name: {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{name}"}}}
    for name in ("n", "m")
}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"$ref": "#", "required": ["b"]}}}, "'$ref' at #/properties/a/$ref"),
        ({"allOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/m"}], "$defs": NODES},
         "'allOf' at #/allOf"),
        ({"$id": "https://example.com/s", "properties":
          {"a": {"oneOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/m"}]}}, "$defs": NODES},
         "'oneOf' at #/properties/a/oneOf"),
    ],
)  # fmt: skip
def test_references_that_are_not_held_are_refused_by_their_place(
    schema: dict[str, Any], place: str
) -> None:
    with pytest.raises(RequestError) as refused:
        validate(of_schema(schema, "schema"), param="schema")
    assert f"schema: the keyword {place} is not supported there: " in str(refused.value)
    assert refused.value.code == "unsupported_schema"
