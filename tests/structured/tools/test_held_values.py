"""Arguments are held to their tool's schema in every way of writing them, or it is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest

from headrace.answer_formats.deltas import joined
from headrace.answer_formats.formats import AnswerFormat, call_format
from headrace.answer_formats.parser import AnswerParser
from headrace.errors import RequestError
from headrace.structured.validity import validate
from tests.structured.matching import Language
from tests.structured.tools.held import held
from tools.structured.language import Language as ByteLanguage


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "harmony"])
def test_what_no_grammar_enforces_of_a_tool_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        held(name, {"properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert caught.value.param == "tools[2].function.parameters"
    assert caught.value.code == "unsupported_schema"
    assert "#/properties/a/uniqueItems" in str(caught.value)
    validate(held(name, {"properties": {"a": {"uniqueItems": True}}}, strict=False))


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("qwen3_coder", {"properties": {"a>b": {}}}),
        ("qwen3_coder", {"anyOf": [{}]}),
        ("qwen3_coder", {"properties": {"a": {"type": "string", "pattern": "(^a|b)c"}}}),
        ("qwen3_coder", {"properties": {"a": {"const": "x</parameter>"}}}),
        ("pythonic", {"properties": {"a b": {}}}),
        ("pythonic", {"required": ["a"], "properties": {"a": False}}),
    ],
)
def test_what_a_format_cannot_write_is_refused(name: str, schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        held(name, schema)
    assert caught.value.param == "tools[2].function.parameters"
    assert caught.value.code == "unsupported_schema"


def test_arguments_that_could_be_no_object_are_refused_or_held_to_one() -> None:
    for kinds in ("string", ["null", "array"]):
        with pytest.raises(RequestError, match="the keyword 'type' at #/type") as caught:
            held("hermes", {"type": kinds})
        assert caught.value.code == "unsupported_schema"
    with pytest.raises(RequestError, match="no value satisfies the keyword"):
        validate(held("hermes", {"const": 1}))
    language = Language(held("hermes", {"type": ["object", "null"]}))
    head = '<tool_call>\n{"name": "f", "arguments": '
    assert language.has(head + "{}}\n</tool_call>")
    assert not language.has(head + "null}\n</tool_call>")


TAGGED = ("qwen3_coder", "glm", "minicpm5", "minimax_m3", "functiongemma")
NOTHING_LEFT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    # Digits would be read as a number, since the reader sees no type.
    "a form that reads as another type": (
        {"allOf": [{"type": "string", "format": "time"}]}, ("qwen3_coder", "minicpm5"),
    ),
    "a pattern of another type": (
        {"allOf": [{"type": "string", "pattern": "^[0-9]+$"}]}, ("qwen3_coder", "minicpm5"),
    ),
    "expressions that never agree": (
        {"type": "string", "pattern": "^a+$", "format": "date"}, TAGGED,
    ),
    "a pattern longer than allowed": (
        {"type": "string", "pattern": "^a{5}$", "maxLength": 3}, TAGGED,
    ),
    "the mark at its end": (
        {"type": "string", "pattern": "^</parameter>$"}, ("qwen3_coder",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", NOTHING_LEFT)
def test_a_value_without_a_text_is_refused_and_as_an_alternative_it_never_begins(kind: str) -> None:
    inner, names = NOTHING_LEFT[kind]
    either = {"properties": {"a": {"anyOf": [inner, {"type": "null"}]}}, "required": ["a"]}
    for name in names:
        with pytest.raises(RequestError, match="'a' allows no value that can be written") as caught:
            held(name, {"properties": {"a": inner}, "required": ["a"]})
        assert caught.value.param == "tools[2].function.parameters"
        language = ByteLanguage(held(name, either))
        for seed in range(4):
            assert b"null" in (language.walk(random.Random(seed)) or b"")


COLOUR = {"type": "string", "enum": ["red", "null", "3"]}
TEXTS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "string": ({"type": "string"}, ["", "a <b>\n", '"', "3"], []),
    "short": ({"type": "string", "maxLength": 3, "minLength": 1}, ["ab", "</p"], ["abcd", ""]),
    "pattern": ({"type": "string", "pattern": "^a/[0-9]+$|x"}, ["a/12", "oxo"], ["a/", "ba/1"]),
    "hostname": ({"type": "string", "format": "hostname"}, ["a.b-c"], ["-a", "a..b"]),
    "date": ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "x"]),
    "enum": (COLOUR, ["red", "null", "3"], ["blue"]),
    "optional": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a", "null", "None"], []),
    "number or text": ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string"}]},
                       ["7", "text", ""], ["3", "-1"]),
    "mixed": ({"enum": [1, "1", "b", None]}, ["1", "b", "null"], ["2", "c"]),
    "referred": ({"$ref": "#/$defs/colour"}, ["red"], ["null", "3", "blue"]),
    "anything": ({}, ["a", "3", '{"a": 1}', "true"], []),
    "list": ({"type": "array", "items": {"type": "string"}}, ["[]", '["</parameter>"]'], ["a"]),
    "flag": ({"type": "boolean"}, ["true", "false"], ["True", "yes"]),
    "number": ({"type": "number"}, ["1.5", "-3"], ["1e5", "x"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_values_between_tags_are_those_of_their_schema_as_the_parser_reads_them(kind: str) -> None:
    inner, valid, invalid = TEXTS[kind]
    schema = {
        "type": "object",
        "$defs": {"colour": COLOUR},
        "properties": {"a": inner},
        "required": ["a"],
    }
    language = Language(held("qwen3_coder", schema))
    assert language.error == ""
    format = AnswerFormat(call_format("qwen3_coder"))
    for value in (*valid, *invalid):
        text = (
            f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n"
            "</tool_call>"
        )
        assert language.has(text) == (value in valid), value
        if value not in valid:
            continue
        parser = AnswerParser(format, tools={"f": schema})
        (call,) = joined([*parser.feed(text), *parser.finish()]).calls
        assert call.fault == ""
        assert jsonschema_rs.is_valid(schema, json.loads(call.arguments)), call.arguments


def test_arguments_in_python_have_its_words() -> None:
    schema = {
        "properties": {
            "flags": {"type": "array", "items": {"type": "boolean"}},
            "note": {"type": ["string", "null"]},
            "mode": {"enum": ["fast", True, None, {"a": False}]},
        }
    }
    language = Language(held("pythonic", schema))
    for arguments in ("", "flags=[True, False]", "note=None", 'note="x", mode={"a": False}',
                      "flags=[], mode=None", 'mode="fast"'):  # fmt: skip
        assert language.has(f"[f({arguments})]"), arguments
    for arguments in ("flags=[true]", "note=null", "mode=false", "note=None flags=[]", ", "):
        assert not language.has(f"[f({arguments})]"), arguments


ITEM = {"type": "integer", "minimum": 1, "maximum": 9}


@pytest.mark.parametrize("name", ["gemma4", "functiongemma", "minimax_m3"])
@pytest.mark.parametrize(
    "list_schema",
    [
        {"items": ITEM, "maxItems": 1},
        {"items": ITEM, "minItems": 1, "maxItems": 1},
        {"items": ITEM, "maxItems": 0},
        {"prefixItems": [ITEM], "items": ITEM, "maxItems": 1},
        {"prefixItems": [ITEM, ITEM], "items": ITEM, "minItems": 2, "maxItems": 2},
        {"prefixItems": [ITEM], "maxItems": 2},
    ],
)
def test_a_list_without_room_for_further_items_compiles(
    name: str, list_schema: dict[str, Any]
) -> None:
    schema = {"properties": {"a": {"type": "array", **list_schema}}, "required": ["a"]}
    grammar = held(name, schema)
    validate(grammar)
    for seed in range(3):
        text = ByteLanguage(grammar).walk(random.Random(seed), 200)
        assert text is not None
        parser = AnswerParser(AnswerFormat(call_format(name)), tools={"f": schema})
        (call,) = joined([*parser.feed(text.decode()), *parser.finish()]).calls
        assert jsonschema_rs.is_valid(schema, json.loads(call.arguments)), text
