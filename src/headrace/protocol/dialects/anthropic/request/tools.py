"""Tools and the choice among them, in both directions."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.protocol.dialects.anthropic.request.cache_marks import CONTROL, marked, read_mark
from headrace.protocol.dialects.anthropic.request.fields import (
    Json,
    want_flag,
    want_list,
    want_name,
    want_object,
    want_one_of,
    want_text,
)
from headrace.protocol.dialects.anthropic.request.schema import supported
from headrace.protocol.dialects.anthropic.values import NAME, rest
from headrace.protocol.neutral.call import ChatCall, HostedTool, Tool, ToolChoice

_TOOL = frozenset({"type", "name", "description", "input_schema", "strict", CONTROL})
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class ReadChoice(NamedTuple):
    """A tool choice as read from a request."""

    choice: ToolChoice | None = None
    parallel: bool | None = None
    """None if disable_parallel_tool_use is missing."""


def read_tools(value: object) -> tuple[Tool | HostedTool, ...]:
    """Functions of the client's; tools with a type of Anthropic's are HostedTool."""
    tools: list[Tool | HostedTool] = []
    for index, item in enumerate(want_list(value, "tools")):
        path = f"tools[{index}]"
        tool = want_object(item, path)
        kind = tool.get("type")
        if kind is not None and want_text(kind, f"{path}.type") != "custom":
            read_mark(tool, path)
            tools.append(HostedTool(NAME, tool))
        else:
            tools.append(_tool(tool, path))
    return tuple(tools)


def _tool(tool: Json, path: str) -> Tool:
    description, strict = tool.get("description"), tool.get("strict")
    return Tool(
        name=want_name(tool.get("name"), f"{path}.name"),
        description=None if description is None else want_text(description, f"{path}.description"),
        parameters=want_object(tool.get("input_schema"), f"{path}.input_schema"),
        strict=None if strict is None else want_flag(strict, f"{path}.strict"),
        cache=read_mark(tool, path),
        extra=rest(tool, _TOOL),
    )


def read_tool_choice(value: object) -> ReadChoice:
    """tool_choice with its disable_parallel_tool_use."""
    if value is None:
        return ReadChoice()
    choice = want_object(value, "tool_choice")
    kind = want_one_of(choice.get("type"), "tool_choice.type", ("auto", "any", "none", "tool"))
    single = choice.get("disable_parallel_tool_use")
    parallel: bool | None = None
    if single is not None:
        parallel = not want_flag(single, "tool_choice.disable_parallel_tool_use")
    if kind == "tool":
        name = want_name(choice.get("name"), "tool_choice.name")
        return ReadChoice(ToolChoice("one", name), parallel)
    if kind == "any":
        return ReadChoice(ToolChoice("required"), parallel)
    return ReadChoice(ToolChoice("auto" if kind == "auto" else "none"), parallel)


def write_tools(
    call: ChatCall, *, strict_known: bool, dropped: dict[str, None]
) -> list[dict[str, Any]]:
    """strict_known: the model takes strict tools. Tools of another vendor's are dropped."""
    own = call.dialect == NAME
    written = []
    for tool in call.tools:
        if isinstance(tool, HostedTool):
            if tool.dialect == NAME:
                # A copy, since a mark too many is taken out of it.
                written.append(dict(tool.value))
            else:
                dropped[f"tools.{tool.value.get('type', tool.dialect)}"] = None
            continue
        schema, strict = tool.parameters, tool.strict
        if not own and strict and not strict_known:
            dropped["tools.strict"] = None
        if not own:
            strict = True if strict and strict_known else None
            schema = {"type": "object", **schema} if schema else _NOTHING
            if strict:
                schema, lost = supported(schema)
                dropped.update({f"tools.parameters.{word}": None for word in lost})
        block: dict[str, Any] = {"name": tool.name}
        if tool.description is not None:
            block["description"] = tool.description
        block["input_schema"] = schema
        if strict is not None:
            block["strict"] = strict
        if own:
            block |= tool.extra
        else:
            dropped.update({f"tools.extra.{name}": None for name in tool.extra})
        written.append(marked(block, tool.cache))
    return written


def write_tool_choice(call: ChatCall) -> dict[str, Any] | None:
    """The tool choice; None if it is the API's default, or there is no tool to choose."""
    choice, parallel = call.tool_choice, call.parallel_tool_calls
    if choice is None:
        if parallel is not False or not call.tools:
            return None
        choice = ToolChoice("auto")
    if not call.tools and choice.kind in ("auto", "none") and call.dialect != NAME:
        return None
    written: dict[str, Any]
    match choice.kind:
        case "one":
            written = {"type": "tool", "name": choice.name}
        case "required":
            written = {"type": "any"}
        case kind:
            written = {"type": kind}
    if parallel is not None and choice.kind != "none":
        written["disable_parallel_tool_use"] = not parallel
    return written
