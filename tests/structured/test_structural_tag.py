"""Structural tags in both of their forms, and what of them is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.request import grammar_of
from headrace.structured.validity import validate
from tests.structured.matching import Language

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}  # fmt: skip
STRUCTURES = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<function=weather>", "schema": CITY, "end": "</function>"},
        {"begin": "<function=time>", "schema": {"type": "integer"}, "end": "</function>"},
    ],
    "triggers": ["<function="],
}


def language(tag: Any) -> Language:
    grammar = grammar_of({"response_format": tag})
    assert grammar is not None
    assert grammar == grammar_of({"structured_outputs": {"structural_tag": json.dumps(tag)}})
    validate(grammar)
    found = Language(grammar)
    assert found.error == ""
    return found


def of(format: Any) -> Language:
    return language({"type": "structural_tag", "format": format})


def test_text_is_free_up_to_a_trigger() -> None:
    found = language(STRUCTURES)
    call = '<function=weather>{"city":"<b>"}</function>'
    for text in ("", "a < b, <functio", call, f"I look: {call} and <function=time>3</function>."):
        assert found.has(text), text
    for text in (
        "<function=",
        "<function=other>{}</function>",
        "<function=time>x</function>",
        f"{call}<function=weather>",
        '<function=weather>{"city":1}</function>',
    ):
        assert not found.has(text), text


def tag(begin: str, content: Any, end: str = ">") -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
WORD = {"type": "regex", "pattern": "[a-z/]+"}


@pytest.mark.parametrize(
    ("format", "valid", "invalid"),
    [
        ({"type": "const_string", "value": "yes"}, ["yes"], ["", "no"]),
        ({"type": "any_text"}, ["", "a\n<"], []),
        ({"type": "sequence",
          "elements": [tag("<think>", {"type": "any_text"}, "</think>"), NUMBER]},
         ["<think>a <b></think>3"], ["<think>a</think>", "3", "<think></think></think>3"]),
        ({"type": "sequence", "elements": [{"type": "any_text"}, tag("<n ", NUMBER)]},
         ["a < b <n 3>", "<n 3>"], ["a", "<n x>"]),
        ({"type": "or", "elements": [tag("<a ", WORD), tag("<b ", NUMBER)]},
         ["<a x/y>", "<b 3>"], ["<a 3>", "<b x>", ""]),
        ({"type": "triggered_tags", "triggers": ["<"], "tags": [tag("<a ", WORD)],
          "at_least_one": True, "stop_after_first": True},
         ["<a x>", "hm <a x>"], ["hm", "<a x> hm", "<a x><a x>"]),
        ({"type": "tags_with_separator", "separator": ", ", "tags": [tag("<a ", WORD)]},
         ["", "<a x>", "<a x>, <a y>"], ["<a x><a y>", ", "]),
        ({"type": "grammar", "grammar": 'root ::= "x" [0-9]'}, ["x1"], ["x"]),
        (tag("<a>", {"type": "any_text"}, "</a>"), ["<a>b</a>"], ["<a>b", "<a>b</a></a>"]),
    ],
)  # fmt: skip
def test_every_part_of_a_tree(format: Any, valid: list[str], invalid: list[str]) -> None:
    found = of(format)
    for text in valid:
        assert found.has(text), text
    for text in invalid:
        assert not found.has(text), text


def nested(depth: int) -> Any:
    format: Any = {"type": "any_text"}
    for _ in range(depth):
        format = {"type": "sequence", "elements": [format]}
    return format


@pytest.mark.parametrize(
    ("format", "param", "code"),
    [
        ({"type": "qwen_xml_parameter", "json_schema": {}}, "format.type", "unsupported"),
        ({"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": ""},
         "format.content", "unsupported"),
        ({"type": "triggered_tags", "triggers": ["<x"], "tags": [tag("<a ", WORD)]},
         "format.tags[0].begin", "invalid_value"),
        ({"type": "triggered_tags", "triggers": ["{{"], "tags": [tag("{{a ", WORD)]},
         "format", "unsupported"),
        ({"type": "sequence", "elements": []}, "format.elements", "invalid_value"),
        ({"type": "json_schema", "json_schema": {"not": {}}}, "format.json_schema",
         "unsupported_schema"),
        ({"type": "sequence", "elements": [{"type": "any_text"}, NUMBER]}, "format.elements[0]",
         "unsupported"),
        ({"type": "const_string", "value": "a", "other": 1}, "format.other", "unsupported"),
        (nested(50), "format" + ".elements[0]" * 16, "invalid_value"),
        ({"type": "or", "elements": [{"type": "any_text"}] * 3000}, "format.elements[1999]",
         "invalid_value"),
        (None, "format", "invalid_value"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(format: Any, param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        grammar_of({"response_format": {"type": "structural_tag", "format": format}})
    assert (caught.value.param, caught.value.code) == (f"response_format.{param}", code)


def test_a_mark_that_is_a_control_token_is_written_by_its_id() -> None:
    grammar = grammar_of({"response_format": STRUCTURES}, {"<function=weather>": 7})
    assert grammar is not None
    assert "<[7]>" in grammar.text
