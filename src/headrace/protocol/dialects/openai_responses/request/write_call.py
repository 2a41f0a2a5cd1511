"""A request to a provider that speaks the Responses API."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.dialects.effort import effort_of
from headrace.protocol.dialects.openai_responses.request.read_call import ENCRYPTED, LOGPROBS
from headrace.protocol.dialects.openai_responses.request.tools import write_tool, write_tool_choice
from headrace.protocol.dialects.openai_responses.request.write_input import InputWriter
from headrace.protocol.dialects.openai_responses.values import DIALECT, SERVICE_TIERS
from headrace.protocol.neutral.call import ChatCall, Reasoning, Tool
from headrace.protocol.neutral.dialect import EncodedRequest

# Fields that OpenAI's chat completions have under the same name and with the same meaning.
_OF_OPENAI = frozenset(
    {
        "store",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "verbosity",
    }
)
# What the API's description asks for; others take less.
_LEAST_TOKENS = 16
_UNSUPPORTED = (
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
)


def write_call(call: ChatCall, model: str, *, origin: str, unsigned: bool) -> EncodedRequest:
    """The body of POST /responses.

    A limit of fewer than 16 tokens, which the API refuses, is written as 16 and told as dropped.
    Nothing else is put in that was not asked, `store` neither: the provider keeps the answer or
    not, as it does for its other clients. The one exception is `include:
    ["reasoning.encrypted_content"]` for calls of other dialects that ask for reasoning: their
    clients bring thoughts back with every turn, and a thought without it is of no use then. Models
    that do not reason may refuse it, so it is not put in for all; OpenAI's description says that
    it gives encrypted content unasked by now.
    """
    own = call.dialect == DIALECT
    writer = InputWriter(call, origin=origin, unsigned=unsigned)
    instructions = writer.write()
    dropped = writer.dropped
    body: dict[str, Any] = {"model": model}
    if writer.items or call.messages or not own:
        body["input"] = writer.items
    _put(body, "instructions", instructions)
    tools = _tools(call, dropped)
    if tools:
        body["tools"] = tools
    if call.tool_choice is not None:
        body["tool_choice"] = write_tool_choice(call.tool_choice)
    _put(body, "parallel_tool_calls", call.parallel_tool_calls)
    _put(body, "max_output_tokens", _max_tokens(call, dropped))
    _put(body, "temperature", call.temperature)
    _put(body, "top_p", call.top_p)
    _put(body, "top_logprobs", call.top_logprobs)
    _put(body, "text", _text(call) or None)
    _put(body, "reasoning", _reasoning(call) or None)
    _put(body, "include", _include(call) or None)
    _put(body, "metadata", call.metadata)
    _put(body, "user", call.user)
    _put(body, "service_tier", _service_tier(call, dropped))
    if call.stream:
        body["stream"] = True
    _extra(call, body, dropped)
    _unsupported(call, dropped)
    return EncodedRequest(
        "/responses",
        {"content-type": "application/json"},
        _encoded(body),
        tuple(sorted(dropped)),
    )


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except RecursionError:
        raise RequestError("the request is nested too deeply", code=TOO_COMPLEX) from None


def _put(body: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        body[name] = value


def _max_tokens(call: ChatCall, dropped: set[str]) -> int | None:
    if call.max_tokens is None or call.dialect == DIALECT or call.max_tokens >= _LEAST_TOKENS:
        return call.max_tokens
    dropped.add("max_tokens")
    return _LEAST_TOKENS


def _tools(call: ChatCall, dropped: set[str]) -> list[dict[str, Any]]:
    own = call.dialect == DIALECT
    tools: list[dict[str, Any]] = []
    for tool in call.tools:
        if isinstance(tool, Tool):
            tools.append(write_tool(tool, own=own))
            if not own:
                dropped.update(f"tools.extra.{name}" for name in tool.extra)
            if tool.cache is not None:
                dropped.add("tools.cache")
        elif tool.dialect == DIALECT:
            tools.append(tool.value)
        else:
            dropped.add(f"tools.{tool.value.get('type', tool.dialect)}")
    return tools


def _text(call: ChatCall) -> dict[str, Any]:
    text: dict[str, Any] = {}
    output = call.output
    if output is not None and output.kind == "text":
        text["format"] = {"type": "text"}
    elif output is not None and output.kind == "json":
        text["format"] = {"type": "json_object"}
    elif output is not None:
        # The API requires a name; a schema that has none elsewhere is an answer's.
        form: dict[str, Any] = {"type": "json_schema", "name": output.name or "answer"}
        form["schema"] = output.schema or {}
        _put(form, "description", output.description)
        _put(form, "strict", output.strict)
        text["format"] = form
    if call.dialect.startswith("openai"):
        _put(text, "verbosity", call.extra.get("verbosity"))
    if call.dialect == DIALECT:
        text |= _object(call.extra.get("text"))
    return text


def _reasoning(call: ChatCall) -> dict[str, Any]:
    written: dict[str, Any] = {}
    reasoning = call.reasoning
    if reasoning is not None:
        effort = reasoning.effort
        if effort is None and reasoning.budget_tokens is not None:
            effort = effort_of(reasoning.budget_tokens)
        _put(written, "effort", effort)
        if reasoning.shown is not False:
            _put(written, "summary", reasoning.summary or ("auto" if reasoning.shown else None))
    if call.dialect == DIALECT:
        written |= _object(call.extra.get("reasoning"))
    return written


def _service_tier(call: ChatCall, dropped: set[str]) -> str | None:
    """The tier in OpenAI's words; Anthropic's "standard_only" is "default" here."""
    tier = call.service_tier
    if tier is None or tier in SERVICE_TIERS or call.dialect == DIALECT:
        return tier
    if tier in ("standard", "standard_only"):
        return "default"
    dropped.add("service_tier")
    return None


def _include(call: ChatCall) -> list[str]:
    include: list[str] = []
    reasoning = call.reasoning
    if call.dialect == DIALECT:
        more = call.extra.get("include")
        include += more if isinstance(more, list) else []
    elif reasoning is not None and _reasons(reasoning):
        include.append(ENCRYPTED)
    if call.thought_signatures and ENCRYPTED not in include:
        include.append(ENCRYPTED)
    if call.logprobs:
        include.append(LOGPROBS)
    return include


def _reasons(reasoning: Reasoning) -> bool:
    if reasoning.effort == "none" or reasoning.budget_tokens == 0:
        return False
    wanted = (
        reasoning.effort,
        reasoning.budget_tokens,
        reasoning.adaptive,
        reasoning.shown,
        reasoning.summary,
    )
    return any(wanted)


def _extra(call: ChatCall, body: dict[str, Any], dropped: set[str]) -> None:
    in_place = {"verbosity", "text", "reasoning", "include"}
    if call.dialect == DIALECT:
        for name, value in call.extra.items():
            if name not in in_place:
                body.setdefault(name, value)
        return
    from_openai = call.dialect.startswith("openai")
    for name, value in call.extra.items():
        if not from_openai or name not in _OF_OPENAI:
            dropped.add(f"extra.{name}")
        elif name != "verbosity":
            body.setdefault(name, value)


def _unsupported(call: ChatCall, dropped: set[str]) -> None:
    dropped.update(name for name in _UNSUPPORTED if getattr(call, name) is not None)
    if call.stop:
        dropped.add("stop")
    if call.choices not in (None, 1):
        dropped.add("choices")
    if any(modality != "text" for modality in call.modalities):
        dropped.add("modalities")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
