"""The writer of bodies for POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.json_values import encoded, objects, text
from headrace.protocol.dialects.mistral.names import DIALECT
from headrace.protocol.dialects.mistral.request.write_messages import MessageWriter
from headrace.protocol.dialects.sampling_range import nearest, whole_seed
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.dialect import EncodedRequest

_WHOLE = {"content-type": "application/json", "accept": "application/json"}
_STREAM = {"content-type": "application/json", "accept": "text/event-stream"}

# Mistral's own fields, which clients of any dialect may send for it. It refuses all it does not
# know.
_OWN_FIELDS = frozenset(
    (
        "document_image_limit",
        "document_page_limit",
        "guardrails",
        "prediction",
        "prompt_cache_key",
        "prompt_mode",
        "safe_prompt",
    )
)
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def write_call(call: ChatCall, model: str) -> EncodedRequest:
    """The request. Raises RequestError for media that Mistral does not accept and for a choice
    without its tool.

    Of sampling values beyond Mistral's ranges the nearest is written and their field is in
    `dropped`. Mistral thinks with effort "high" or not at all: others are told as "high".
    """
    writer = MessageWriter(call)
    body: dict[str, Any] = {"model": model, "messages": writer.all(), "stream": call.stream}
    dropped = writer.dropped
    extra = _extra(call, dropped)
    _write_tools(call, body, dropped)
    _write_sampling(call, body, dropped)
    if call.choices is not None:
        body["n"] = call.choices
    if call.output is not None:
        body["response_format"] = _format(call.output)
    if call.metadata is not None:
        body["metadata"] = call.metadata
    effort = _effort(call.reasoning, dropped)
    if effort is not None:
        body["reasoning_effort"] = effort
    dropped |= dict.fromkeys(_unsupported(call))
    headers = _STREAM if call.stream else _WHOLE
    return EncodedRequest("/v1/chat/completions", headers, encoded(extra | body), tuple(dropped))


def _extra(call: ChatCall, dropped: dict[str, None]) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for name, value in call.extra.items():
        if call.dialect != DIALECT and name not in _OWN_FIELDS:
            dropped[f"extra.{name}"] = None
        elif name == "prediction":
            taken[name] = _prediction(value)
        else:
            taken[name] = value
    return taken


def _prediction(value: Any) -> Any:
    """Mistral takes one text where OpenAI takes a list of parts as well."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        words = "".join(text(part.get("text")) for part in objects(value["content"]))
        return value | {"content": words}
    return value


def _write_tools(call: ChatCall, body: dict[str, Any], dropped: dict[str, None]) -> None:
    tools: list[dict[str, Any]] = []
    for tool in call.tools:
        if isinstance(tool, Tool):
            if tool.cache is not None:
                dropped["tools.cache"] = None
            dropped |= {f"tools.extra.{name}": None for name in tool.extra}
            tools.append({"type": "function", "function": _function(tool)})
        elif tool.dialect == DIALECT:
            tools.append(tool.value)
        else:
            dropped[f"tools.{text(tool.value.get('type')) or tool.dialect}"] = None
    choice = call.tool_choice
    if choice is not None:
        _check_choice(choice, call.tools, bool(tools))
    if not tools:
        return
    body["tools"] = tools
    if choice is not None:
        one = {"type": "function", "function": {"name": choice.name}}
        body["tool_choice"] = one if choice.kind == "one" else _CHOICES[choice.kind]
    if call.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = call.parallel_tool_calls


def _check_choice(
    choice: ToolChoice, tools: tuple[Tool | HostedTool, ...], any_written: bool
) -> None:
    named = any(isinstance(tool, Tool) and tool.name == choice.name for tool in tools)
    if (choice.kind == "one" and not named) or (choice.kind == "required" and not any_written):
        wanted = "a tool" if choice.name is None else f"the tool {shown(choice.name)}"
        raise RequestError(
            f"tool_choice: {wanted} must be called, but tools does not contain it; add it to tools",
            param="tool_choice",
        )


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    # Mistral requires parameters: an object without any is how a function has none.
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return function


def _write_sampling(call: ChatCall, body: dict[str, Any], dropped: dict[str, None]) -> None:
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
    if call.temperature is not None:
        body["temperature"] = nearest(call.temperature, 0, 1.5, "temperature", dropped)
    if call.top_p is not None:
        body["top_p"] = nearest(call.top_p, 0, 1, "top_p", dropped)
    if call.frequency_penalty is not None:
        body["frequency_penalty"] = nearest(
            call.frequency_penalty, -2, 2, "frequency_penalty", dropped
        )
    if call.presence_penalty is not None:
        body["presence_penalty"] = nearest(
            call.presence_penalty, -2, 2, "presence_penalty", dropped
        )
    if call.seed is not None:
        body["random_seed"] = whole_seed(call.seed)
    if call.stop:
        body["stop"] = list(call.stop)


def _format(output: OutputFormat) -> dict[str, Any]:
    if output.kind == "text":
        return {"type": "text"}
    if output.schema is None:
        return {"type": "json_object"}
    # Mistral requires a name; it has no other meaning than to be one.
    schema: dict[str, Any] = {"name": output.name or "response", "schema": output.schema}
    if output.description is not None:
        schema["description"] = output.description
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}


def _effort(reasoning: Reasoning | None, dropped: dict[str, None]) -> str | None:
    if reasoning is None:
        return None
    if reasoning.shown is False:
        dropped["reasoning.shown"] = None
    if reasoning.summary is not None:
        dropped["reasoning.summary"] = None
    budget = reasoning.budget_tokens
    if reasoning.effort == "none" or (budget is not None and budget <= 0):
        return "none"
    if reasoning.adaptive:
        dropped["reasoning.adaptive"] = None
    if budget is not None:
        dropped["reasoning.budget_tokens"] = None
    if reasoning.effort not in (None, "high"):
        dropped["reasoning.effort"] = None
    asked = reasoning.effort is not None or budget is not None or reasoning.adaptive
    return "high" if asked else None


def _unsupported(call: ChatCall) -> list[str]:
    """Fields that have no word in Mistral's API, where they ask for something."""
    asked = {
        "top_k": call.top_k is not None,
        "min_p": call.min_p is not None,
        "repetition_penalty": call.repetition_penalty is not None,
        "logit_bias": bool(call.logit_bias),
        "logprobs": bool(call.logprobs),
        "top_logprobs": bool(call.top_logprobs),
        "modalities": bool(set(call.modalities) - {"text"}),
        "user": call.user is not None,
        "service_tier": call.service_tier is not None,
    }
    return [name for name, is_asked in asked.items() if is_asked]
