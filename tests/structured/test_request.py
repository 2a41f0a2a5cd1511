"""Fields of OpenAI, vLLM and llama-server become one grammar, or are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar
from headrace.structured.request import grammar_of
from headrace.structured.validity import validate
from tests.structured.matching import Language

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
GBNF = 'root ::= "x" digit+ # numbers\ndigit ::= [0-9\\u0041B]\n'


@pytest.mark.parametrize(
    "fields",
    [{}, {"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None},
     {"temperature": 1.0}],
)  # fmt: skip
def test_free_text_has_no_grammar(fields: dict[str, Any]) -> None:
    assert grammar_of(fields) is None


def test_every_way_of_giving_a_schema_is_the_same_grammar() -> None:
    form = {"name": "n", "strict": True, "schema": SCHEMA}
    grammars = [
        grammar_of(fields)
        for fields in (
            {"response_format": {"type": "json_schema", "json_schema": form}},
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            {"structured_outputs": {"json": SCHEMA, "regex": None, "json_object": False}},
            {"structured_outputs": {"json": json.dumps(SCHEMA)}},
            {"guided_json": SCHEMA},
            {"json_schema": SCHEMA},
        )
    ]
    first = grammars[0]
    assert first is not None
    assert first.kind == "json_schema"
    validate(first)
    assert grammars == [first] * len(grammars)


def test_the_clients_own_options_of_llguidance_are_not_used() -> None:
    lenient = {"x-guidance": {"lenient": True, "whitespace_flexible": True}, **SCHEMA}
    assert grammar_of({"guided_json": lenient}) == grammar_of({"guided_json": SCHEMA})


def test_what_is_too_large_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(value: object) -> bytes:
        raise AssertionError("all of it was written as JSON")

    monkeypatch.setattr("msgspec.json.encode", refused)
    texts = {"enum": ["x" * 1000] * 600}
    circle: dict[str, Any] = {"items": {}}
    circle["items"] = circle
    for schema in (texts, {"enum": [0] * 600_000}, {"x" * 600_000: 0}, circle):
        with pytest.raises(RequestError, match="bytes of JSON or more; at most 524288") as error:
            grammar_of({"guided_json": schema})
        assert error.value.code == "grammar_too_large"


def test_an_object_without_a_schema() -> None:
    for fields in (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ):
        grammar = grammar_of(fields)
        assert grammar is not None
        language = Language(grammar)
        assert language.has('{"a":[1,{"b":null}]}')
        assert not language.has("[1]")


@pytest.mark.parametrize("field", ["grammar", "guided_grammar", "ebnf"])
def test_gbnf_becomes_lark_of_the_same_language(field: str) -> None:
    grammar = grammar_of({field: GBNF})
    assert grammar is not None
    assert grammar.kind == "lark"
    language = Language(grammar)
    assert language.error == ""
    assert language.has("x1AB")  # \u0041 and B, where the converter alone reads one number
    assert not language.has("x1C")
    assert not language.has("x")


def test_lark_expressions_and_choices_go_as_they_are() -> None:
    lark = "start: /[ab]+/"
    assert grammar_of({"guided_grammar": lark}) == Grammar("lark", lark)
    for field in ("guided_regex", "regex"):
        assert grammar_of({field: "[ab]+"}) == Grammar("regex", "[ab]+")
    choices = grammar_of({"guided_choice": ["é", "b"]})
    assert choices == Grammar("choice", '["é","b"]')
    validate(choices)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "several_grammars"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs",
         "several_grammars"),
        ({"structured_outputs": {}}, "structured_outputs", "invalid_value"),
        ({"structured_outputs": {"structural_tag": "{}"}},
         "structured_outputs.structural_tag.format", "invalid_value"),
        ({"structured_outputs": {"json": {}, "whitespace_pattern": "x*"}},
         "structured_outputs.whitespace_pattern", "unsupported"),
        ({"structured_outputs": {"json": {}, "_backend": "outlines"}},
         "structured_outputs._backend", "unsupported"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.format",
         "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema",
         "invalid_value"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
         "response_format.json_schema.name", "invalid_value"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": 1,
                                                                     "schema": {}}}},
         "response_format.json_schema.strict", "invalid_value"),
        ({"guided_regex": "a", "guided_whitespace_pattern": " "}, "guided_whitespace_pattern",
         "invalid_value"),
        ({"response_format": "json"}, "response_format", "invalid_value"),
        ({"guided_json": "{"}, "guided_json", "invalid_value"),
        ({"guided_choice": []}, "guided_choice", "invalid_value"),
        ({"guided_choice": ["a", 1]}, "guided_choice[1]", "invalid_value"),
        ({"guided_regex": ""}, "guided_regex", "invalid_value"),
        ({"grammar": "root ::= missing"}, "grammar", "invalid_grammar"),
        ({"grammar": "root ::= ("}, "grammar", "invalid_grammar"),
        ({"grammar": 'root ::= [a&&b]'}, "grammar", "invalid_grammar"),
        ({"grammar": 'root ::= "\\uD800"'}, "grammar", "invalid_grammar"),
        ({"grammar": "#" * 40_000}, "grammar", "grammar_too_large"),
        ({"grammar": "root ::= " + "(" * 20_000}, "grammar", "grammar_too_large"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
         "structured_outputs.whitespace_pattern", "unsupported"),
        ({"structured_outputs": {"choice": ["a"], "disable_additional_properties": True}},
         "structured_outputs.disable_additional_properties", "unsupported"),
        ({"json_schema": {"not": {}}}, "json_schema", "unsupported_schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(
    fields: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        grammar_of(fields)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert param.partition(".")[0] in str(caught.value)


def language(fields: dict[str, Any]) -> Language:
    grammar = grammar_of(fields)
    assert grammar is not None
    validate(grammar)
    found = Language(grammar)
    assert found.error == ""
    return found


def test_white_space_is_written_where_a_client_asks_for_it_and_bounded() -> None:
    for pattern in ("[ \n]*", r"[ \n\t]{0,20}", r"\s+"):
        found = language({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": pattern}})
        assert found.has('{"a":1}')
        assert found.has('{ "a": \n 1}')
        assert not found.has('{"a":' + " " * 30 + "1}")
    assert language({"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"}).has('{"a": 1}')


def test_what_always_holds_may_be_asked_for() -> None:
    asked = {"json": SCHEMA, "disable_fallback": True, "disable_any_whitespace": True}
    assert grammar_of({"structured_outputs": asked}) == grammar_of({"guided_json": SCHEMA})


def test_objects_are_closed_where_a_client_asks_for_it() -> None:
    inner = {"properties": {"properties": {"type": "object", "properties": {}}}}
    open_ = {"type": "object", "properties": {"a": inner}, "$defs": {"b": {}}}
    found = language({"structured_outputs": {"json": open_, "disable_additional_properties": True}})
    assert found.has('{"a":{"properties":{}}}')
    assert not found.has('{"b":1}')
    assert not found.has('{"a":{"properties":{"c":1}}}')


def test_numbers_are_bounded_where_a_schema_states_no_bounds() -> None:
    for schema in ({}, {"type": "number"}, {"type": ["integer", "null"]}, {"type": "array"}):
        found = language({"guided_json": schema})
        wrap = "[{}]" if schema == {"type": "array"} else "{}"
        assert found.has(wrap.format(9 * 10**18))
        assert not found.has(wrap.format(10**19))
        assert not found.has(wrap.format("1" * 400))
        assert not found.has(wrap.format("1e400"))
    assert not language({"guided_json": {"type": "integer", "maximum": 10**19}}).has("-" + "1" * 20)
    nested = {"type": "object", "properties": {"a": {"items": {}}}}
    assert not language({"guided_json": nested}).has('{"a":[' + "1" * 400 + "]}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"structured_outputs": {}}, "give exactly one of json, regex, choice, grammar"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "is missing"),
        ({"guided_json": {"uniqueItems": True}}, "bound the list by maxItems"),
        ({"grammar": f"root ::= {'(' * 5000}{')' * 5000}"}, "at most 100 brackets"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "beside regex"),
    ],
)
def test_a_refusal_says_what_to_do(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        grammar_of(fields)


def test_the_keys_that_a_message_names_are_those_that_are_taken() -> None:
    with pytest.raises(RequestError) as refused:
        grammar_of({"structured_outputs": {"json": {}, "backend": "outlines"}})
    named = str(refused.value).partition("supported are ")[2].split(", ")
    assert {"json", "structural_tag", "whitespace_pattern", "disable_any_whitespace"} <= {*named}
    for name in named:
        try:
            grammar_of({"structured_outputs": {name: True}})
        except RequestError as error:
            assert "is not supported; supported are" not in str(error)


def test_a_form_without_a_schema_is_any_object() -> None:
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
    assert grammar_of(form) == grammar_of({"response_format": {"type": "json_object"}})
