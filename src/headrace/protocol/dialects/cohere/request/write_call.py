"""The writer of bodies for POST /v2/chat."""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.cohere.names import DIALECT
from headrace.protocol.dialects.cohere.request.write_messages import MessageWriter
from headrace.protocol.dialects.json_values import encoded, text
from headrace.protocol.dialects.sampling_range import nearest, whole_seed
from headrace.protocol.neutral.call import ChatCall, HostedTool, OutputFormat, Reasoning, Tool
from headrace.protocol.neutral.dialect import EncodedRequest

_WHOLE = {"content-type": "application/json", "accept": "application/json"}
_STREAM = {"content-type": "application/json", "accept": "text/event-stream"}

# Cohere's own fields, which clients of any dialect may send for it.
_OWN_FIELDS = frozenset(
    ("citation_options", "documents", "priority", "safety_mode", "strict_tools", "thinking")
)
_THINKING_FIELDS = frozenset(("type", "token_budget"))
_MOST_K = 500
_LEAST_P, _MOST_P = 0.01, 0.99


def write_call(call: ChatCall, model: str) -> EncodedRequest:
    """The request. Raises RequestError for media that Cohere does not accept and for a choice
    without its tool.

    One named tool that must be called is told by leaving out all others and REQUIRED, which comes
    to the same. Of sampling values beyond Cohere's ranges the nearest is written and their field is
    in `dropped`. An effort of reasoning only says whether to think, unless there is a budget.
    """
    writer = MessageWriter(call)
    messages = writer.system(call.instructions)
    for number, message in enumerate(call.messages):
        messages += writer.messages(message, f"messages[{number}]")
    dropped = writer.dropped
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": call.stream}
    extra = _extra(call, dropped)
    _write_tools(call, body, extra, dropped)
    _write_sampling(call, body, dropped)
    if call.output is not None:
        body["response_format"] = _format(call.output, dropped)
    thinking = _thinking(call.reasoning, dropped)
    if thinking is not None:
        body["thinking"] = thinking
    if writer.documents:
        more = extra.get("documents")
        body["documents"] = (more if isinstance(more, list) else []) + writer.documents
    dropped |= dict.fromkeys(_unsupported(call))
    headers = _STREAM if call.stream else _WHOLE
    return EncodedRequest("/v2/chat", headers, encoded(extra | body), tuple(dropped))


def _extra(call: ChatCall, dropped: dict[str, None]) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for name, value in call.extra.items():
        known = name in _OWN_FIELDS
        if name == "thinking" and not (
            isinstance(value, dict) and value.keys() <= _THINKING_FIELDS
        ):
            known = False
        if call.dialect == DIALECT or known:
            taken[name] = value
        else:
            dropped[f"extra.{name}"] = None
    return taken


def _write_tools(
    call: ChatCall, body: dict[str, Any], extra: dict[str, Any], dropped: dict[str, None]
) -> None:
    choice = call.tool_choice
    tools: list[dict[str, Any]] = []
    strict: list[bool | None] = []
    for tool in call.tools:
        if isinstance(tool, HostedTool):
            if tool.dialect == DIALECT:
                tools.append(tool.value)
            else:
                dropped[f"tools.{text(tool.value.get('type')) or tool.dialect}"] = None
            continue
        if tool.cache is not None:
            dropped["tools.cache"] = None
        dropped |= {f"tools.extra.{name}": None for name in tool.extra}
        if choice is None or choice.kind != "one" or choice.name == tool.name:
            strict.append(tool.strict)
            tools.append(_function(tool))
    if choice is not None and choice.kind == "one":
        tools = [tool for tool in tools if _names(tool, choice.name)]
    if choice is not None and choice.kind in ("required", "one") and not tools:
        wanted = "a tool" if choice.name is None else f"the tool {shown(choice.name)}"
        raise RequestError(
            f"tool_choice: {wanted} must be called, but tools does not contain it; add it to tools",
            param="tool_choice",
        )
    if not tools:
        return
    body["tools"] = tools
    if choice is not None and choice.kind != "auto":
        body["tool_choice"] = "NONE" if choice.kind == "none" else "REQUIRED"
    # Cohere's strictness is of all tools or none.
    if any(strict) and "strict_tools" not in extra:
        if all(strict):
            body["strict_tools"] = True
        else:
            dropped["tools.strict"] = None


def _names(tool: dict[str, Any], name: str | None) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and function.get("name") == name


def _function(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    # Cohere requires parameters: an object without any is how a function has none.
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _write_sampling(call: ChatCall, body: dict[str, Any], dropped: dict[str, None]) -> None:
    if call.max_tokens is not None:
        body["max_tokens"] = call.max_tokens
    if call.temperature is not None:
        body["temperature"] = nearest(call.temperature, 0, 1, "temperature", dropped)
    if call.top_p is not None:
        body["p"] = nearest(call.top_p, _LEAST_P, _MOST_P, "top_p", dropped)
    if call.top_k is not None:
        # -1 is how others say that all tokens are taken; Cohere says 0.
        body["k"] = int(nearest(max(call.top_k, 0), 0, _MOST_K, "top_k", dropped))
    if call.frequency_penalty is not None:
        body["frequency_penalty"] = nearest(
            call.frequency_penalty, 0, 1, "frequency_penalty", dropped
        )
    if call.presence_penalty is not None:
        body["presence_penalty"] = nearest(call.presence_penalty, 0, 1, "presence_penalty", dropped)
    if call.seed is not None:
        body["seed"] = whole_seed(call.seed)
    if call.stop:
        body["stop_sequences"] = list(call.stop)
    if call.logprobs is not None:
        body["logprobs"] = call.logprobs


def _format(output: OutputFormat, dropped: dict[str, None]) -> dict[str, Any]:
    if output.kind == "text":
        return {"type": "text"}
    if output.description is not None:
        dropped["output.description"] = None
    told: dict[str, Any] = {"type": "json_object"}
    if output.schema is not None:
        told["json_schema"] = output.schema
    return told


def _thinking(reasoning: Reasoning | None, dropped: dict[str, None]) -> dict[str, Any] | None:
    if reasoning is None:
        return None
    if reasoning.shown is False:
        dropped["reasoning.shown"] = None
    if reasoning.summary is not None:
        dropped["reasoning.summary"] = None
    budget = reasoning.budget_tokens
    if reasoning.effort == "none" or (budget is not None and budget <= 0):
        return {"type": "disabled"}
    if reasoning.adaptive:
        dropped["reasoning.adaptive"] = None
    if budget is not None:
        return {"type": "enabled", "token_budget": budget}
    if reasoning.effort is not None:
        dropped["reasoning.effort"] = None
    return {"type": "enabled"} if reasoning.effort is not None or reasoning.adaptive else None


def _unsupported(call: ChatCall) -> list[str]:
    """Fields that have no word in Cohere's API, where they ask for something."""
    asked = {
        "parallel_tool_calls": call.parallel_tool_calls is False,
        "min_p": call.min_p is not None,
        "repetition_penalty": call.repetition_penalty is not None,
        "logit_bias": bool(call.logit_bias),
        "choices": (call.choices or 1) != 1,
        "top_logprobs": bool(call.top_logprobs),
        "modalities": bool(set(call.modalities) - {"text"}),
        "user": call.user is not None,
        "metadata": bool(call.metadata),
        "service_tier": call.service_tier is not None,
    }
    return [name for name, is_asked in asked.items() if is_asked]
