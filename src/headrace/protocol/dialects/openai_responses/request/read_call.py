"""A client's request to POST /v1/responses, read into the neutral form."""

from __future__ import annotations

from typing import Any, get_args

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.openai_responses.request.fields import (
    boolean,
    integer,
    mapping_of,
    missing,
    number,
    request_object,
    required_string,
    string,
    strings_of,
    wrong,
)
from headrace.protocol.dialects.openai_responses.request.read_input import Input, read_input
from headrace.protocol.dialects.openai_responses.request.state import STATEFUL_FIELDS
from headrace.protocol.dialects.openai_responses.request.tools import read_tool_choice, read_tools
from headrace.protocol.dialects.openai_responses.values import DIALECT, rest
from headrace.protocol.neutral.call import ChatCall, Effort, OutputFormat, Reasoning
from headrace.protocol.neutral.part import Text

ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

_EFFORTS: dict[str, Effort] = {arg: arg for arg in get_args(Effort)}
_NEUTRAL = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "text",
        "reasoning",
        "include",
        "metadata",
        "user",
        "service_tier",
        "stream",
    }
)
_FORMAT = frozenset({"type", "name", "description", "schema", "strict"})


def read_call(body: bytes) -> ChatCall:
    """Raises RequestError naming the field at fault.

    What has no neutral form is in `extra` under the API's own name; of a field that has one in part
    (text, reasoning, include, tool_choice) only the rest is there, text.verbosity as "verbosity".
    """
    request = request_object(body)
    extra = rest(request, _NEUTRAL)
    model = required_string(request, "model")
    taken = _input(request)
    instructions = string(request, "instructions", "")
    if instructions:
        taken.instructions.insert(0, Text(text=instructions))
    choice = read_tool_choice(request.get("tool_choice"))
    if choice is None and request.get("tool_choice") is not None:
        extra["tool_choice"] = request["tool_choice"]
    include = strings_of(request, "include")
    if more := [included for included in include if included not in (ENCRYPTED, LOGPROBS)]:
        extra["include"] = more
    for name in ("store", "background"):
        boolean(request, name)
    string(request, "previous_response_id")
    return ChatCall(
        dialect=DIALECT,
        model=model,
        messages=tuple(taken.messages),
        instructions=tuple(taken.instructions),
        tools=read_tools(request),
        tool_choice=choice,
        parallel_tool_calls=boolean(request, "parallel_tool_calls"),
        max_tokens=integer(request, "max_output_tokens", 1),
        temperature=number(request, "temperature", 2),
        top_p=number(request, "top_p", 1),
        logprobs=True if LOGPROBS in include else None,
        top_logprobs=integer(request, "top_logprobs", 0, 20),
        output=_output(request, extra),
        reasoning=_reasoning(request, extra),
        user=string(request, "user"),
        metadata=_metadata(request),
        service_tier=string(request, "service_tier"),
        stream=boolean(request, "stream") or False,
        stream_usage=True,
        thought_signatures=True if ENCRYPTED in include else None,
        extra=extra,
    )


def _input(request: dict[str, Any]) -> Input:
    value = request.get("input")
    if value is None:
        if any(request.get(name) is not None for name in (*STATEFUL_FIELDS, "instructions")):
            return Input()
        raise missing("input", "give a string or a list of items")
    if not isinstance(value, str | list):
        raise wrong("input", "a string or a list of items", value)
    return read_input(value)


def _output(request: dict[str, Any], extra: dict[str, Any]) -> OutputFormat | None:
    text = mapping_of(request, "text")
    if text is None:
        return None
    if verbosity := string(text, "verbosity", "text."):
        extra["verbosity"] = verbosity
    if more := rest(text, frozenset({"format", "verbosity"})):
        extra["text"] = more
    form = mapping_of(text, "format", "text.")
    if form is None:
        return None
    at = "text.format."
    kind = required_string(form, "type", at)
    if kind == "text":
        return OutputFormat(kind="text")
    if kind == "json_object":
        return OutputFormat(kind="json")
    if kind == "json_schema":
        schema = mapping_of(form, "schema", at)
        if schema is None:
            raise missing(f"{at}schema")
        return OutputFormat(
            kind="schema",
            schema=schema,
            name=required_string(form, "name", at),
            description=string(form, "description", at),
            strict=boolean(form, "strict", at),
        )
    if asked_of_provider := rest(form, frozenset()):
        extra.setdefault("text", {})["format"] = asked_of_provider
    return None


def _reasoning(request: dict[str, Any], extra: dict[str, Any]) -> Reasoning | None:
    reasoning = mapping_of(request, "reasoning")
    if reasoning is None:
        return None
    effort = string(reasoning, "effort", "reasoning.")
    summary = string(reasoning, "summary", "reasoning.")
    budget = integer(reasoning, "max_tokens", 0, at="reasoning.")
    more = rest(reasoning, frozenset({"effort", "summary", "max_tokens"}))
    known = _EFFORTS.get(effort) if effort else None
    if effort and known is None:
        more["effort"] = effort
    if more:
        extra["reasoning"] = more
    if known is None and summary is None and budget is None:
        return None
    return Reasoning(
        effort=known, budget_tokens=budget, summary=summary, shown=True if summary else None
    )


def _metadata(request: dict[str, Any]) -> dict[str, str] | None:
    metadata = mapping_of(request, "metadata")
    for name, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise RequestError(
                f"metadata.{name}: expected a string, got {shown(value)}",
                param=f"metadata.{name}",
                code="invalid_type",
            )
    return metadata
