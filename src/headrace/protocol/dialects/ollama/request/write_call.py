"""The writer of bodies for POST /api/chat."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.ollama.request.fields import encoded
from headrace.protocol.dialects.ollama.request.options import write_options
from headrace.protocol.dialects.ollama.request.think import write_think
from headrace.protocol.dialects.ollama.request.write_messages import MessageWriter
from headrace.protocol.neutral.call import ChatCall, HostedTool, OutputFormat, Tool
from headrace.protocol.neutral.dialect import EncodedRequest

_WHOLE = {"content-type": "application/json", "accept": "application/json"}
_STREAM = {"content-type": "application/json", "accept": "application/x-ndjson"}


def write_call(call: ChatCall, model: str) -> EncodedRequest:
    """The request. Raises RequestError for images by address, other media, and arguments that are
    not an object.

    `stream` is always written, since Ollama streams unless it is told not to. Ollama has no
    tool_choice: "auto" is what it does, for "none" the tools are left out, others are dropped.
    """
    writer = MessageWriter(call)
    messages = writer.system(call.instructions)
    for number, message in enumerate(call.messages):
        messages += writer.messages(message, f"messages[{number}]")
    dropped = dict(writer.dropped)
    think = write_think(call.reasoning)
    extra = _extra(call, dropped)
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": call.stream}
    tools = _tools(call, dropped)
    if tools:
        body["tools"] = tools
    output = _format(call.output, dropped)
    if output is not None:
        body["format"] = output
    if think.value is not None:
        body["think"] = think.value
    if call.logprobs is not None:
        body["logprobs"] = call.logprobs
    if call.top_logprobs is not None:
        body["top_logprobs"] = call.top_logprobs
    options = extra.pop("options", {}) | write_options(call)
    if options:
        body["options"] = options
    dropped |= dict.fromkeys((*think.dropped, *_unsupported(call)))
    headers = _STREAM if call.stream else _WHOLE
    return EncodedRequest("/api/chat", headers, encoded(body | extra), tuple(dropped))


def _extra(call: ChatCall, dropped: dict[str, None]) -> dict[str, Any]:
    if call.dialect == "ollama":
        return dict(call.extra)
    dropped |= {f"extra.{name}": None for name in call.extra}
    return {}


def _tools(call: ChatCall, dropped: dict[str, None]) -> list[dict[str, Any]]:
    choice = call.tool_choice
    if choice is not None and choice.kind == "none":
        return []
    if choice is not None and choice.kind != "auto":
        dropped["tool_choice"] = None
    tools = []
    for tool in call.tools:
        if isinstance(tool, HostedTool):
            dropped[f"tools.{tool.value.get('type', tool.dialect)}"] = None
            continue
        if tool.strict:
            dropped["tools.strict"] = None
        if tool.cache is not None:
            dropped["cache"] = None
        if call.dialect != "ollama":
            dropped |= {f"tools.extra.{name}": None for name in tool.extra}
        tools.append({"type": "function", "function": _function(tool)})
    return tools


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    # Ollama requires parameters: an object without any is how a function has none.
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return function


def _format(output: OutputFormat | None, dropped: dict[str, None]) -> str | dict[str, Any] | None:
    if output is None or output.kind == "text":
        return None
    if output.description is not None:
        dropped["output.description"] = None
    return "json" if output.schema is None else output.schema


def _unsupported(call: ChatCall) -> list[str]:
    """Fields that have no word in Ollama's API, where they ask for something."""
    given = {
        "parallel_tool_calls": call.parallel_tool_calls is False,
        "logit_bias": bool(call.logit_bias),
        "choices": (call.choices or 1) != 1,
        "modalities": bool(set(call.modalities) - {"text"}),
        "user": call.user is not None,
        "metadata": bool(call.metadata),
        "service_tier": call.service_tier is not None,
    }
    return [name for name, is_given in given.items() if is_given]
