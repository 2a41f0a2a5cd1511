"""POST /chat/completions as clients write it. Source: OpenAI's API description, 2026."""

from __future__ import annotations

from typing import Any

from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.openai_chat.request.fields import Fields, refuse
from headrace.protocol.dialects.openai_chat.request.read_message import read_messages
from headrace.protocol.dialects.openai_chat.request.reasoning import read_reasoning
from headrace.protocol.dialects.openai_chat.values import DIALECT, left_over, mapping
from headrace.protocol.neutral.call import ChatCall, HostedTool, OutputFormat, Tool, ToolChoice
from headrace.protocol.neutral.part import CacheMark

_MOST_CHOICES = 128
_TOOL = frozenset({"type", "function", "cache_control"})
_FUNCTION = frozenset({"name", "description", "parameters", "strict", "cache_control"})


def read_call(body: bytes) -> ChatCall:
    """The call in a body. Raises RequestError naming the field at fault. Unknown fields are in
    `extra`.

    Ranges that differ between services are left to them; only meaningless values are refused.
    """
    fields = Fields(decode_object(body))
    model = fields.string("model")
    if not model:
        raise refuse("model", model, "the name of a model")
    conversation = read_messages(fields.take("messages"))
    legacy = "functions" in fields.left and "tools" not in fields.left
    tools = _read_functions(fields) if legacy else _read_tools(fields)
    tool_choice = _read_function_call(fields) if legacy else _read_tool_choice(fields)
    max_tokens = fields.integer("max_tokens", 1)
    max_completion_tokens = fields.integer("max_completion_tokens", 1)
    stream_usage = _read_stream_options(fields)
    choices = fields.integer("n", 1)
    if choices is not None and choices > _MOST_CHOICES:
        raise refuse("n", choices, f"at most {_MOST_CHOICES}")
    return ChatCall(
        dialect=DIALECT,
        model=model,
        messages=conversation.messages,
        instructions=conversation.instructions,
        tools=tools,
        tool_choice=tool_choice,
        # Whoever knows functions alone reads one call in an answer.
        parallel_tool_calls=False if legacy and tools else fields.flag("parallel_tool_calls"),
        max_tokens=max_tokens if max_completion_tokens is None else max_completion_tokens,
        temperature=fields.number("temperature", 0),
        top_p=fields.number("top_p", 0, 1),
        top_k=fields.integer("top_k", -1),
        min_p=fields.number("min_p", 0, 1),
        frequency_penalty=fields.number("frequency_penalty"),
        presence_penalty=fields.number("presence_penalty"),
        repetition_penalty=fields.number("repetition_penalty", 0),
        logit_bias=_read_bias(fields),
        seed=fields.integer("seed"),
        stop=fields.strings("stop"),
        choices=choices,
        logprobs=fields.flag("logprobs"),
        top_logprobs=fields.integer("top_logprobs", 0),
        output=_read_output(fields),
        reasoning=read_reasoning(fields),
        modalities=fields.strings("modalities"),
        user=fields.string("user"),
        metadata=_read_metadata(fields),
        service_tier=fields.string("service_tier"),
        stream=fields.flag("stream") or False,
        stream_usage=stream_usage,
        legacy_functions=legacy,
        extra=fields.left,
    )


def _read_stream_options(fields: Fields) -> bool:
    options = dict(fields.object("stream_options") or {})
    wanted = options.pop("include_usage", None)
    if wanted is not None and not isinstance(wanted, bool):
        raise refuse("stream_options.include_usage", wanted, "true or false")
    if options:
        fields.left["stream_options"] = options
    return wanted or False


def _read_function(value: Any, at: str, outer: dict[str, Any]) -> Tool:
    if not isinstance(value, dict):
        raise refuse(at, value, "an object")
    name, description = value.get("name"), value.get("description")
    parameters, strict = value.get("parameters"), value.get("strict")
    if not isinstance(name, str) or not name:
        raise refuse(f"{at}.name", name, "a function's name")
    if description is not None and not isinstance(description, str):
        raise refuse(f"{at}.description", description, "a string")
    if parameters is not None and not isinstance(parameters, dict):
        raise refuse(f"{at}.parameters", parameters, "a JSON schema")
    if strict is not None and not isinstance(strict, bool):
        raise refuse(f"{at}.strict", strict, "true or false")
    control = outer.get("cache_control", value.get("cache_control"))
    ttl = mapping(control).get("ttl")
    extra = left_over(outer, _TOOL)
    inner = left_over(value, _FUNCTION)
    if inner:
        extra["function"] = inner
    return Tool(
        name=name,
        description=description,
        parameters=parameters or {},
        strict=strict,
        cache=CacheMark(ttl if ttl in ("5m", "1h") else None) if control else None,
        extra=extra,
    )


def _read_tools(fields: Fields) -> tuple[Tool | HostedTool, ...]:
    value = fields.take("tools")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise refuse("tools", value, "a list")
    tools: list[Tool | HostedTool] = []
    for index, tool in enumerate(value):
        at = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise refuse(at, tool, "an object")
        if tool.get("type", "function") == "function":
            tools.append(_read_function(tool.get("function"), f"{at}.function", tool))
        elif isinstance(tool.get("type"), str):
            tools.append(HostedTool(DIALECT, tool))
        else:
            raise refuse(f"{at}.type", tool.get("type"), "a string")
    return tuple(tools)


def _read_functions(fields: Fields) -> tuple[Tool | HostedTool, ...]:
    value = fields.take("functions")
    if not isinstance(value, list):
        raise refuse("functions", value, "a list")
    return tuple(
        _read_function(function, f"functions[{at}]", {}) for at, function in enumerate(value)
    )


def _read_tool_choice(fields: Fields) -> ToolChoice | None:
    value = fields.take("tool_choice")
    if value is None:
        return None
    for kind in ("auto", "none", "required"):
        if value == kind:
            return ToolChoice(kind)
    if isinstance(value, dict):
        if value.get("type", "function") == "function":
            name = mapping(value.get("function")).get("name")
            if not isinstance(name, str) or not name:
                raise refuse("tool_choice.function.name", name, "a function's name")
            return ToolChoice("one", name)
        fields.left["tool_choice"] = value  # OpenAI's allowed_tools and custom tools
        return None
    raise refuse("tool_choice", value, 'one of "auto", "none", "required" or an object')


def _read_function_call(fields: Fields) -> ToolChoice | None:
    value = fields.take("function_call")
    if value is None:
        return None
    if value in ("auto", "none"):
        return ToolChoice(value)
    name = mapping(value).get("name")
    if not isinstance(name, str) or not name:
        raise refuse("function_call", value, '"auto", "none" or {"name": ...}')
    return ToolChoice("one", name)


def _read_bias(fields: Fields) -> dict[str, float] | None:
    value = fields.object("logit_bias")
    for token, bias in (value or {}).items():
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise refuse(f"logit_bias.{token}", bias, "a number")
    return value


def _read_metadata(fields: Fields) -> dict[str, str] | None:
    value = fields.object("metadata")
    for name, entry in (value or {}).items():
        if not isinstance(entry, str):
            raise refuse(f"metadata.{name}", entry, "a string")
    return value


def _read_output(fields: Fields) -> OutputFormat | None:
    value = fields.object("response_format")
    if value is None:
        return None
    kind = value.get("type")
    if kind == "text":
        return OutputFormat(kind="text")
    if kind == "json_object":
        return OutputFormat(kind="json")
    if kind != "json_schema":
        if not isinstance(kind, str):
            raise refuse("response_format.type", kind, "a string")
        fields.left["response_format"] = value  # grammars of engines
        return None
    at = "response_format.json_schema"
    form = value.get("json_schema")
    if not isinstance(form, dict):
        raise refuse(at, form, "an object")
    schema, strict = form.get("schema"), form.get("strict")
    if schema is not None and not isinstance(schema, dict):
        raise refuse(f"{at}.schema", schema, "a JSON schema")
    if strict is not None and not isinstance(strict, bool):
        raise refuse(f"{at}.strict", strict, "true or false")
    for name in ("name", "description"):
        if form.get(name) is not None and not isinstance(form[name], str):
            raise refuse(f"{at}.{name}", form[name], "a string")
    return OutputFormat(
        kind="schema",
        schema=schema,
        name=form.get("name"),
        description=form.get("description"),
        strict=strict,
    )
