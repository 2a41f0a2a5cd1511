"""A tool that is not strict is never refused for what its model's format cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.answer_formats.formats import CALL_FORMATS, AnswerFormat, call_format
from headrace.conversation.answer_grammar import held_to
from headrace.errors import RequestError
from headrace.protocol.openai.tools import FunctionDefinition, ToolChoice, ToolDefinition
from headrace.structured.compile import validate
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks
from tests.structured.matching import Language


@dataclass(frozen=True)
class Rules:
    tools: Sequence[ToolDefinition]
    parallel_tool_calls: bool = False


def tool(name: str, schema: dict[str, Any], strict: bool | None = None) -> ToolDefinition:
    return ToolDefinition(function=FunctionDefinition(name=name, parameters=schema, strict=strict))


def required(name: str, *tools: ToolDefinition, checks: GrammarChecks | None = None) -> Grammar:
    found = held_to(
        None, Rules(tools), AnswerFormat(call_format(name)),
        choice=ToolChoice("required"), opened=False, special={}, checks=checks or GrammarChecks(),
    )  # fmt: skip
    assert found is not None
    return found[0]


ONE_OF_TWO = {
    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
}
NOT_EQUAL = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
LONG = {"type": "string", "minLength": 2}
SHOWN_BY_COMPILING: list[tuple[str, dict[str, Any]]] = [
    ("oneOf", {"oneOf": [{"type": "string"}, LONG]}),
    ("oneOf", {"type": "array", "items": {"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}}),
    ("maxProperties", {"type": "object", "maxProperties": 1, "properties": {"x": {}, "y": {}}}),
    ("patternProperties", {"type": "object", "patternProperties": {"^a": {}, "a$": {}}}),
    ("$ref", {"type": "array", "items": {"$ref": "#/properties/p", "maxItems": 3}}),
]
"""What only compiling shows not to be held, as the schema of a parameter."""
UNWRITTEN = {"properties": {"a>b:c d": {"type": "string"}}}


@pytest.mark.parametrize("name", [each.name for each in CALL_FORMATS])
def test_any_format_takes_a_tool_beside_a_strict_one(name: str) -> None:
    strict = tool("g", {"properties": {"n": {"type": "integer"}}}, strict=True)
    for schema in (ONE_OF_TWO, NOT_EQUAL, UNWRITTEN):
        assert required(name, tool("f", schema), strict).kind == "composed"


@pytest.mark.parametrize("name", ["qwen3_coder", "gemma4", "pythonic", "minimax_m3"])
def test_a_strict_tool_is_refused_where_its_schema_cannot_be_held(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        required(name, tool("g", {}), tool("f", ONE_OF_TWO, strict=True))
    assert caught.value.code == "unsupported_schema"
    assert caught.value.param == "tools[1].function.parameters"


@pytest.mark.parametrize("name", ["qwen3_coder", "gemma4", "pythonic", "minimax_m3"])
def test_arguments_of_a_schema_that_cannot_be_held_are_free_and_compile(name: str) -> None:
    validate(required(name, tool("f", ONE_OF_TWO)))


def test_a_schema_that_can_be_held_is_held_beside_one_that_cannot() -> None:
    grammar = required(
        "pythonic", tool("f", ONE_OF_TWO), tool("g", {"properties": {"n": {"type": "integer"}}})
    )
    language = Language(grammar)
    assert language.has("[f(c=[1])]")
    assert language.has("[g(n=1)]")
    assert not language.has('[g(n="a")]')


FORMATS = ["hermes", "harmony", "mistral", "qwen3_coder", "gemma4", "pythonic", "minimax_m3"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("keyword", "inner"), SHOWN_BY_COMPILING)
def test_arguments_are_free_where_compiling_shows_that_a_schema_is_not_held(
    name: str, keyword: str, inner: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"p": inner}, "required": ["p"]}
    strict = tool("g", {"properties": {"n": {"type": "integer"}}}, strict=True)
    validate(required(name, tool("f", schema), strict))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("keyword", "inner"), SHOWN_BY_COMPILING)
def test_a_strict_tool_is_refused_where_compiling_shows_that_its_schema_is_not_held(
    name: str, keyword: str, inner: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"p": inner}, "required": ["p"]}
    with pytest.raises(RequestError) as caught:
        required(name, tool("g", {}), tool("f", schema, strict=True))
    assert caught.value.code == "unsupported_schema"
    assert caught.value.param == "tools[1].function.parameters"
    assert f"'{keyword}' at #/properties/p/" in str(caught.value)


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("invalid_schema", {"properties": {"p": {"type": "string", "required": True}}}),
    ("invalid_schema", {"properties": {"p": {"type": "str"}}}),
    ("invalid_schema", {"properties": {"p": "a text"}}),
    ("invalid_schema", {"properties": ["p"]}),
    ("invalid_schema", {"properties": {"p": {"type": "string", "pattern": "("}}}),
    ("invalid_schema", {"properties": {"p": {"$ref": "#/$defs/absent"}}}),
    ("invalid_schema", {"properties": {"p": {"oneOf": [{"type": "any"}]}}}),
    ("invalid_grammar", {"type": "object", "required": ["p"],
     "properties": {"p": {"$ref": "#/properties/p"}}}),
]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("code_and_schema", [*MALFORMED, ("", {"type": "dict"})], ids=str)
def test_a_malformed_schema_leaves_arguments_free_unless_its_tool_is_strict(
    name: str, code_and_schema: tuple[str, dict[str, Any]]
) -> None:
    code, schema = code_and_schema
    other = tool("g", {"properties": {"n": {"type": "integer"}}}, strict=True)
    validate(required(name, tool("f", schema), other))
    with pytest.raises(RequestError) as caught:
        required(name, other, tool("f", schema, strict=True))
    assert caught.value.code in ((code,) if code else ("invalid_schema", "unsupported_schema"))
    assert caught.value.param == "tools[1].function.parameters"


def test_schemas_of_tools_are_compiled_once_for_all_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    def counted(grammar: Grammar, *, param: str) -> None:
        compiled.append(param)
        validate(grammar, param=param)

    monkeypatch.setattr("headrace.structured.compile.validate", counted)
    apart = {"properties": {"p": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}
    overlapping = {"properties": {"p": {"oneOf": [{"type": "string"}, LONG]}}}
    checks = GrammarChecks()
    tools = (tool("f", apart), tool("g", overlapping))
    first = required("hermes", *tools, checks=checks)
    assert compiled == ["tools[0].function.parameters", "tools[1].function.parameters"]
    assert required("hermes", *tools, checks=checks) == first
    assert len(compiled) == 2
    # What is known of a tool that is not strict is not what a strict one is refused for.
    with pytest.raises(RequestError) as caught:
        required("hermes", tool("g", overlapping, strict=True), checks=checks)
    assert caught.value.param == "tools[0].function.parameters"


def test_alternatives_that_cannot_overlap_are_held() -> None:
    schema = {"properties": {"p": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}
    language = Language(required("hermes", tool("f", schema)))
    call = '<tool_call>\n{"name": "f", "arguments": {"p": %s}}\n</tool_call>'
    assert [value for value in ("null", "1", '"a"') if language.has(call % value)] == ["null", "1"]


def test_a_list_of_no_items_is_written_in_python() -> None:
    schema = {"properties": {"p": {"type": "array", "items": False}}, "required": ["p"]}
    language = Language(required("pythonic", tool("f", schema, strict=True)))
    assert language.has("[f(p=[])]")
    assert not language.has("[f(p=[1])]")


NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/properties/p"}},
    "required": ["v"],
    "additionalProperties": False,
}
ROOT_AGAIN = {"type": "object", "properties": {"x": {"$ref": "#"}}, "additionalProperties": False}
CALLS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"p": %s}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=p>\n%s\n</parameter>\n</function>\n"
    "</tool_call>",
    "pythonic": "[f(p=%s)]",
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("schema", [MALFORMED[0][1], {"type": "dict"}], ids=str)
def test_any_arguments_are_taken_where_a_schema_is_malformed(
    name: str, schema: dict[str, Any]
) -> None:
    language = Language(required(name, tool("f", schema)))
    assert [value for value in ('"a"', "1", "[1]") if not language.has(CALLS[name] % value)] == []


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("inner", "valid", "invalid"),
    [
        (NODE, '{"v": 1, "next": {"v": 2}}', '{"v": 1, "next": {"v": "a"}}'),
        (ROOT_AGAIN, '{"x": {"p": {}}}', '{"x": {"p": 1}}'),
        ({"$ref": "#/$defs/n"}, "{}", "{}}"),
    ],
    ids=["property", "whole", "own definitions"],
)
def test_references_lead_where_they_did_in_every_format(
    name: str, inner: dict[str, Any], valid: str, invalid: str
) -> None:
    schema = {"$id": "https://example.com/f", "type": "object", "properties": {"p": inner},
              "required": ["p"], "$defs": {"n": {"type": "object"}}}  # fmt: skip
    language = Language(required(name, tool("f", schema, strict=True)))
    assert language.error == ""
    assert language.has(CALLS[name] % valid)
    assert not language.has(CALLS[name] % invalid)
