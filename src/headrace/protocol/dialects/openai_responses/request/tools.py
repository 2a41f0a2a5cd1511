"""Tools and the choice among them, which this API writes flat: the name stands beside the type."""

from __future__ import annotations

from typing import Any, Literal, get_args

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.openai_responses.request.fields import (
    boolean,
    mapping_of,
    missing,
    objects_of,
    required_string,
    string,
    wrong,
)
from headrace.protocol.dialects.openai_responses.values import DIALECT, rest
from headrace.protocol.neutral.call import HostedTool, Tool, ToolChoice

_Word = Literal["auto", "none", "required"]
_WORDS: dict[str, _Word] = {arg: arg for arg in get_args(_Word)}
_FUNCTION = frozenset({"type", "name", "description", "parameters", "strict"})
_NO_PARAMETERS = {"type": "object", "properties": {}}


def read_tools(body: dict[str, Any]) -> tuple[Tool | HostedTool, ...]:
    """Functions, and tools that the provider runs."""
    found: list[Tool | HostedTool] = []
    for index, tool in enumerate(objects_of(body, "tools")):
        at = f"tools[{index}]."
        if required_string(tool, "type", at) != "function":
            found.append(HostedTool(DIALECT, tool))
            continue
        if "name" not in tool and isinstance(tool.get("function"), dict):
            raise missing(f"{at}name", "this API expects it beside the type, not within `function`")
        found.append(
            Tool(
                name=required_string(tool, "name", at),
                description=string(tool, "description", at),
                parameters=mapping_of(tool, "parameters", at) or {},
                strict=boolean(tool, "strict", at),
                extra=rest(tool, _FUNCTION),
            )
        )
    return tuple(found)


def read_tool_choice(value: Any) -> ToolChoice | None:
    """The choice; None also for one without a neutral form: allowed_tools, and tools of the
    provider."""
    if value is None:
        return None
    if isinstance(value, str):
        word = _WORDS.get(value)
        if word is None:
            raise RequestError(
                f"tool_choice: {shown(value)} is neither auto, none or required nor an object",
                param="tool_choice",
                code="invalid_value",
            )
        return ToolChoice(word)
    if not isinstance(value, dict):
        raise wrong("tool_choice", "a string or an object", value)
    if required_string(value, "type", "tool_choice.") == "function":
        return ToolChoice("one", required_string(value, "name", "tool_choice."))
    return None


def write_tool(tool: Tool, *, own: bool) -> dict[str, Any]:
    """A function.

    This API holds a function to its schema unless it is told not to, and then makes every
    parameter required; others do so only when asked. What they did not say is therefore said here.
    """
    written: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description is not None:
        written["description"] = tool.description
    written["parameters"] = tool.parameters or _NO_PARAMETERS
    if tool.strict is not None:
        written["strict"] = tool.strict
    elif not own:
        written["strict"] = False
    return {**tool.extra, **written} if own else written


def write_tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    """The word, or the function's name."""
    if choice.kind == "one":
        return {"type": "function", "name": choice.name}
    return choice.kind
