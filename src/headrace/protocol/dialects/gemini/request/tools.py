"""Tools and which of them to use: neutral ones as Gemini's `tools` and `toolConfig`.

    auto         AUTO, or VALIDATED where all functions are strict: calls are held to their schema
    none         NONE
    required     ANY
    one          ANY with allowedFunctionNames

Tools of Google's (googleSearch, urlContext, codeExecution, ...) are HostedTools of dialect "gemini"
whose value is the entry itself; those of other vendors are dropped. Gemini calls functions side by
side as it likes, and cannot be told to call one at a time.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.gemini.place import GeminiApi, Place
from headrace.protocol.dialects.gemini.request.model_name import generation
from headrace.protocol.dialects.gemini.request.schema import json_schema
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import text
from headrace.protocol.neutral.call import ChatCall, HostedTool, Tool


def write_tools(call: ChatCall, model: str, place: Place) -> tuple[dict[str, Any], list[str]]:
    """The fields `tools` and `toolConfig` as far as there are any, and what was dropped."""
    dropped: list[str] = []
    functions = [tool for tool in call.tools if isinstance(tool, Tool)]
    hosted = [hosted_tool for hosted_tool in call.tools if isinstance(hosted_tool, HostedTool)]
    entries: list[dict[str, Any]] = []
    for hosted_tool in hosted:
        if hosted_tool.dialect == DIALECT:
            entries.append(hosted_tool.value)
        else:
            dropped.append(f"tools.{text(hosted_tool.value.get('type')) or hosted_tool.dialect}")
    if entries and functions and isinstance(place, GeminiApi) and _combines(model):
        config: dict[str, Any] = {"includeServerSideToolInvocations": True}
    else:
        config = {}
    if functions:
        entries.append(
            {"functionDeclarations": [_declared(function, dropped) for function in functions]}
        )
    calling = _calling(call, functions, dropped)
    if calling:
        config["functionCallingConfig"] = calling
    if call.parallel_tool_calls is False and functions:
        dropped.append("parallel_tool_calls")
    fields: dict[str, Any] = {}
    if entries:
        fields["tools"] = entries
    if config:
        fields["toolConfig"] = config
    return fields, dropped


def _declared(tool: Tool, dropped: list[str]) -> dict[str, Any]:
    # A description is required, though an empty one is taken.
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description or ""}
    if tool.parameters:
        schema, lost = json_schema(tool.parameters, "tools")
        declared["parametersJsonSchema"] = schema
        dropped += [f"tools.parameters.{keyword}" for keyword in lost]
    if tool.cache is not None:
        dropped.append("cache")
    dropped += [f"tools.extra.{name}" for name in tool.extra]
    return declared


def _calling(call: ChatCall, functions: list[Tool], dropped: list[str]) -> dict[str, Any]:
    choice = call.tool_choice
    strict = [function.strict is True for function in functions]
    if not functions:
        if choice is not None and choice.kind in ("required", "one"):
            dropped.append("tool_choice")
        return {}
    if choice is not None and choice.kind == "none":
        return {"mode": "NONE"}
    if choice is not None and choice.kind != "auto":
        named = {"allowedFunctionNames": [choice.name]} if choice.kind == "one" else {}
        return {"mode": "ANY", **named}
    if all(strict):
        return {"mode": "VALIDATED"}
    if any(strict):
        dropped.append("tools.strict")
    return {} if choice is None else {"mode": "AUTO"}


def _combines(model: str) -> bool:
    """Whether Google's tools and functions may be used together, which has to be requested."""
    known = generation(model)
    return known is not None and known >= (3, 0)
