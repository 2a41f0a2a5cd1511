"""A request for a provider's chat completions.

Written is what the call says and nothing else, but for one: a streamed answer's usage is always
asked for where the variant understands that, since without it nobody knows what the answer took.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_chat.request.reasoning import write_reasoning
from headrace.protocol.dialects.openai_chat.request.write_message import MessageWriter
from headrace.protocol.dialects.openai_chat.values import DIALECT, add_missing
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.neutral.call import ChatCall, HostedTool, OutputFormat, Tool, ToolChoice
from headrace.protocol.neutral.dialect import EncodedRequest

# Field of the call, and its name on the wire, where the value goes over as it is.
_PLAIN = (
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("min_p", "min_p"),
    ("frequency_penalty", "frequency_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("repetition_penalty", "repetition_penalty"),
    ("logit_bias", "logit_bias"),
    ("seed", "seed"),
    ("choices", "n"),
    ("logprobs", "logprobs"),
    ("top_logprobs", "top_logprobs"),
    ("user", "user"),
    ("metadata", "metadata"),
    ("service_tier", "service_tier"),
    ("parallel_tool_calls", "parallel_tool_calls"),
)
_JSON = {"Content-Type": "application/json"}


@lru_cache(maxsize=1024)
def path_for(path: str, model: str) -> str:
    """A variant's path with the model in its place."""
    return path.replace("{model}", quote(model, safe=""))


def write_call(call: ChatCall, model: str, variant: Variant) -> EncodedRequest:
    """Raises RequestError for a call that this variant cannot do at all."""
    messages = MessageWriter(variant, same_dialect=call.dialect == DIALECT)
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            *messages.instructions(call.instructions),
            *messages.messages(call.messages),
        ],
    }
    _write_tools(body, call, variant, messages)
    if call.max_tokens is not None:
        body[variant.max_tokens_field] = call.max_tokens
    for field, name in _PLAIN:
        value = getattr(call, field)
        if value is None:
            continue
        # One answer is what everybody gives.
        if field in variant.takes:
            body[name] = value
        elif not (field == "choices" and value == 1) and not (field == "logprobs" and not value):
            messages.drop(field)
    for field in ("stop", "modalities"):
        values = getattr(call, field)
        if values and field in variant.takes:
            body[field] = list(values)
        elif values and list(values) != ["text"]:
            messages.drop(field)
    if call.output is not None:
        _write_output(body, call.output, variant, messages)
    if call.reasoning is not None:
        add_missing(body, write_reasoning(call.reasoning, variant, messages.dropped))
    if call.stream:
        body["stream"] = True
        if variant.stream_usage:
            body["stream_options"] = {"include_usage": True}
    _write_extra(body, call, variant, messages)
    return EncodedRequest(
        path_for(variant.chat_path, model), _JSON, _encoded(body), tuple(messages.dropped)
    )


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"the request cannot be written as JSON: {error}") from None


def _write_tools(
    body: dict[str, Any], call: ChatCall, variant: Variant, messages: MessageWriter
) -> None:
    if call.tools and "tools" not in variant.takes:
        raise RequestError(
            f"tools: {variant.name} does not support tools; omit them or choose a model elsewhere",
            param="tools",
        )
    tools: list[dict[str, Any]] = []
    for tool in call.tools:
        if isinstance(tool, Tool):
            tools.append(_tool(tool, call, variant, messages))
        elif tool.dialect == DIALECT and "hosted_tools" in variant.takes:
            tools.append(tool.value)
        else:
            messages.drop(f"tools.{_kind(tool)}")
    if tools:
        body["tools"] = tools
    if call.tool_choice is not None and (tools or call.tool_choice.kind != "none"):
        if "tool_choice" in variant.takes:
            body["tool_choice"] = _tool_choice(call.tool_choice)
        elif call.tool_choice.kind != "auto":
            messages.drop("tool_choice")


def _kind(tool: HostedTool) -> str:
    kind = tool.value.get("type")
    return kind if isinstance(kind, str) else tool.dialect


def _tool(tool: Tool, call: ChatCall, variant: Variant, messages: MessageWriter) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = tool.parameters
    if tool.strict is not None and "strict" in variant.takes:
        function["strict"] = tool.strict
    elif tool.strict:
        messages.drop("tools.strict")
    written: dict[str, Any] = {"type": "function", "function": function}
    if tool.cache is not None:
        if variant.cache_marks == "cache_control":
            control = {"type": "ephemeral"}
            if tool.cache.lifetime is not None:
                control["ttl"] = tool.cache.lifetime
            written["cache_control"] = control
        else:
            messages.drop("cache")
    if call.dialect == DIALECT:
        add_missing(written, tool.extra)
    else:
        for name in tool.extra:
            messages.drop(f"tools.extra.{name}")
    return written


def _tool_choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.kind == "one":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.kind


def _write_output(
    body: dict[str, Any], output: OutputFormat, variant: Variant, messages: MessageWriter
) -> None:
    if output.kind == "text":
        body["response_format"] = {"type": "text"}
        return
    if output.kind == "json" and "json" in variant.takes:
        body["response_format"] = {"type": "json_object"}
        return
    if output.kind == "json" or "json_schema" not in variant.takes:
        messages.drop("output.schema" if output.kind == "schema" else "output")
        return
    # A name is required; other dialects have none.
    form: dict[str, Any] = {"name": output.name or "output"}
    if output.description is not None:
        form["description"] = output.description
    if output.schema is not None:
        form["schema"] = output.schema
    if output.strict is not None:
        form["strict"] = output.strict
    body["response_format"] = {"type": "json_schema", "json_schema": form}


def _write_extra(
    body: dict[str, Any], call: ChatCall, variant: Variant, messages: MessageWriter
) -> None:
    for name, value in call.extra.items():
        if call.dialect != DIALECT or name in variant.refuses:
            messages.drop(f"extra.{name}")
        elif name == "reasoning_effort" and variant.effort_style == "reasoning_effort":
            body[name] = value  # a word of its own, for which the neutral form has a nearest
        elif isinstance(value, dict):
            add_missing(body, {name: value})
        else:
            body.setdefault(name, value)
