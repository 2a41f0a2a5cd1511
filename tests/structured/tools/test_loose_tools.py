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
from tests.structured.matching import Language


@dataclass(frozen=True)
class Rules:
    tools: Sequence[ToolDefinition]
    parallel_tool_calls: bool = False


def tool(name: str, schema: dict[str, Any], strict: bool | None = None) -> ToolDefinition:
    return ToolDefinition(function=FunctionDefinition(name=name, parameters=schema, strict=strict))


def required(name: str, *tools: ToolDefinition) -> Grammar:
    found = held_to(
        None, Rules(tools), AnswerFormat(call_format(name)),
        choice=ToolChoice("required"), opened=False, special={},
    )  # fmt: skip
    assert found is not None
    return found[0]


ONE_OF_TWO = {
    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
}
NOT_EQUAL = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
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
