"""What a conversation brings beside its messages, as templates and readers know it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.answer_formats.formats import AnswerFormat, call_format, reasoning_format
from headrace.conversation.request import (
    allowed_format,
    argument_schemas,
    template_tools,
    template_variables,
)
from headrace.protocol.openai.tools import ToolDefinition

SCHEMA = {"type": "object", "properties": {"zone": {"type": "string"}}}
THINKS = AnswerFormat(call_format("hermes"), reasoning_format("think"))
HARMONY = AnswerFormat(call_format("harmony"), reasoning_format("harmony"))


def tool(**function: Any) -> ToolDefinition:
    return msgspec.convert({"type": "function", "function": function}, ToolDefinition)


def test_a_template_sees_a_tool_without_what_is_the_apis_own() -> None:
    tools = [tool(name="a", description="A.", parameters=SCHEMA, strict=True), tool(name="b")]
    assert template_tools(tools) == [
        {"type": "function", "function": {"name": "a", "description": "A.", "parameters": SCHEMA}},
        {
            "type": "function",
            "function": {"name": "b", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    assert argument_schemas(tools) == {"a": SCHEMA, "b": {}}
    assert argument_schemas([]) is None


@pytest.mark.parametrize("effort", ["none", "low"])
def test_an_effort_is_a_variable_and_the_switch_of_templates_that_have_no_effort(
    effort: str,
) -> None:
    thinks = effort != "none"
    expected = {"reasoning_effort": effort, "enable_thinking": thinks, "thinking": thinks}
    assert template_variables({}, effort) == expected
    given = {"enable_thinking": not thinks, "reasoning_effort": "mine"}
    assert template_variables(given, effort) == {**expected, **given}
    assert template_variables(given, None) == given


@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
def test_an_answer_has_no_tags_of_reasoning_that_a_switch_turned_off(switch: str) -> None:
    off = {switch: False}
    assert allowed_format(THINKS, off, opened=False) == AnswerFormat(THINKS.calls, None)
    assert allowed_format(THINKS, off, opened=True) == THINKS
    assert allowed_format(THINKS, {switch: True}, opened=False) == THINKS
    assert allowed_format(HARMONY, off, opened=False) == HARMONY
