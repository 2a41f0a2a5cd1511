"""toolConfig: the tools a model may call, and whether it must.

Two rules of the API that are not those of others: there is no choice "none", and tools must be
declared as long as the conversation has calls or results of tools in it. So:

- "none" leaves the tools out. Where the conversation has calls or results they stay, and that the
  choice could not be said is told.
- A conversation with calls or results but without tools declares those that were called, as
  functions of any arguments.
- "auto" is what models do anyway and is left out, since some refuse any choice at all.
- Parameters of strict tools have the limits that schemas of answers have.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.anthropic.request.schema import supported
from headrace.protocol.dialects.bedrock.request.family import Family
from headrace.protocol.dialects.bedrock.values import DIALECT
from headrace.protocol.neutral.call import ChatCall, Tool
from headrace.protocol.neutral.part import CacheMark, ToolCall, ToolResult

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANY_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def cache_point(mark: CacheMark) -> dict[str, Any]:
    """The block that stands after what it marks. Five minutes are the API's own lifetime."""
    point = {"type": "default"}
    if mark.lifetime == "1h":
        point["ttl"] = "1h"
    return {"cachePoint": point}


def tool_config(call: ChatCall, family: Family, dropped: list[str]) -> dict[str, Any] | None:
    """The toolConfig; None if the request needs none. Raises RequestError for an invalid tool "
    "name."""
    called = _called(call)
    choice = call.tool_choice
    kind = "auto" if choice is None else choice.kind
    if kind == "none" and not called:
        return None
    tools = _tools(call, family, dropped) or [_spec(name, _ANY_ARGUMENTS) for name in called]
    if kind == "none" or (kind != "auto" and not tools):
        dropped.append("tool_choice")
    if not tools:
        return None
    config: dict[str, Any] = {"tools": tools}
    if kind == "required":
        config["toolChoice"] = {"any": {}}
    elif kind == "one" and choice is not None:
        config["toolChoice"] = {"tool": {"name": choice.name}}
    return config


def _tools(call: ChatCall, family: Family, dropped: list[str]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for number, tool in enumerate(call.tools):
        at = f"tools[{number}]"
        if isinstance(tool, Tool):
            dropped += [f"{at}.extra.{name}" for name in tool.extra]
            tools.append(_tool(tool, at, family, dropped))
            if tool.cache is not None:
                if family.tool_cache_points:
                    tools.append(cache_point(tool.cache))
                else:
                    dropped.append(f"{at}.cache")
        elif tool.dialect == DIALECT:
            tools.append(tool.value)
        else:
            dropped.append(f"{at}.{tool.value.get('type', tool.dialect)}")
    return tools


def _tool(tool: Tool, at: str, family: Family, dropped: list[str]) -> dict[str, Any]:
    if not _NAME.fullmatch(tool.name):
        raise RequestError(
            f"{at}.name: Bedrock does not accept the name {shown(tool.name)}; use 1 to 64 "
            "letters, digits, '_' or '-'",
            param=f"{at}.name",
            code="invalid_value",
        )
    # The schema's top level has to be an object.
    schema = {"type": "object", **tool.parameters} if tool.parameters else _ANY_ARGUMENTS
    strict = tool.strict and family.strict_tools
    if strict:
        schema, lost = supported(schema)
        dropped += [f"{at}.parameters.{word}" for word in lost]
    elif tool.strict:
        dropped.append(f"{at}.strict")
    spec = _spec(tool.name, schema)
    if tool.description:
        spec["toolSpec"]["description"] = tool.description
    if strict:
        spec["toolSpec"]["strict"] = True
    return spec


def _spec(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"toolSpec": {"name": name, "inputSchema": {"json": schema}}}


def _called(call: ChatCall) -> list[str]:
    """Names of the tools that the conversation has calls or results of, each once."""
    names: dict[str, None] = {}
    orphans = False
    for message in call.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.name] = None
            elif isinstance(part, ToolResult):
                orphans = True
                if part.name:
                    names[part.name] = None
    return list(names) or (["tool"] if orphans else [])
