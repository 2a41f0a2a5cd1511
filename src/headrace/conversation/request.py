"""What a conversation brings beside its messages: tools and effort, as templates know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.answer_formats.call_syntax import AnswerFormat, ThinkTags
from headrace.protocol.openai.tools import ToolDefinition

THINKING_SWITCHES = ("enable_thinking", "thinking")
"""Variables with which templates turn reasoning on and off, by family."""


def template_tools(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Tools as templates know them: what is the API's own (`strict`) is no part of the prompt."""
    return [_template_tool(tool) for tool in tools]


def _template_tool(tool: ToolDefinition) -> dict[str, Any]:
    function = tool.function
    shown: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        shown["description"] = function.description
    shown["parameters"] = function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": shown}


def argument_schemas(tools: Sequence[ToolDefinition]) -> dict[str, dict[str, Any]] | None:
    """The schema of each tool's arguments by its name; None without tools, where no calls are
    read."""
    return {tool.function.name: tool.function.parameters or {} for tool in tools} or None


def template_variables(
    given: Mapping[str, Any], effort: str | None, max_thinking_tokens: int | None = None
) -> dict[str, Any]:
    """Variables for the template; what the caller names itself goes before effort and budget.

    Templates of Qwen3 (enable_thinking), DeepSeek-V3.1 and Granite (thinking) have a switch instead
    of an effort, so `none` turns that off, as it does in vLLM. A budget of 0 does too, whatever the
    effort: a model that is opened to think and may not would write its thoughts into the answer.
    max_thinking_tokens: the budget; None for none.
    """
    variables = dict(given)
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
    if effort is not None or max_thinking_tokens == 0:
        for switch in THINKING_SWITCHES:
            variables.setdefault(switch, effort != "none" and max_thinking_tokens != 0)
    return variables


def allowed_format(
    format: AnswerFormat, variables: Mapping[str, Any], *, opened: bool
) -> AnswerFormat:
    """The format that a grammar allows an answer: without the tags of reasoning where a switch of
    the template turned that off, or a model would open them by itself.

    variables: of the template. opened: the prompt ended within reasoning all the same. Harmony's
    channels are its form of every answer, and stay.
    """
    is_off = any(variables.get(switch) is False for switch in THINKING_SWITCHES)
    tagged = format.reasoning is not None and isinstance(format.reasoning.tags, ThinkTags)
    return AnswerFormat(format.calls, None) if is_off and tagged and not opened else format
