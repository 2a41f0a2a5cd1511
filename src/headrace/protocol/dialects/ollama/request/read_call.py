"""The reader of bodies of POST /api/chat."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama.images import read_images
from headrace.protocol.dialects.ollama.request.fields import Fields, read_fields
from headrace.protocol.dialects.ollama.request.options import read_options
from headrace.protocol.dialects.ollama.request.think import read_think
from headrace.protocol.dialects.ollama.tool_ids import WaitingCalls, call_id
from headrace.protocol.dialects.openai_chat.thoughts import read_details
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Tool
from headrace.protocol.neutral.part import Signature, Text, Thinking, ToolCall, ToolResult

NAME = "ollama"

_SYSTEM = ("system", "developer")


def read_call(body: bytes) -> ChatCall:
    """Raises RequestError naming the field at fault. Without messages the model is to be loaded.

    System messages before the first turn are instructions, unless they hold more than text. A call
    streams unless it says otherwise, and the last line of a stream always tells the usage.
    """
    fields = read_fields(body)
    model = fields.text("model")
    if not model:
        raise fields.missing("model", "name the model to use")
    instructions, messages = _conversation(fields.objects("messages"))
    return read_shared_fields(fields, model, instructions, messages)


def read_shared_fields(
    fields: Fields, model: str, instructions: tuple[Text, ...], messages: tuple[Message, ...]
) -> ChatCall:
    """The fields that /api/chat and /api/generate share. Raises RequestError."""
    options = fields.mapping("options")
    said, rest = read_options(options) if options is not None else ({}, {})
    stream = fields.flag("stream") is not False
    call: dict[str, Any] = {
        "tools": tuple(_tool(tool) for tool in fields.objects("tools")),
        "output": _output(fields),
        "reasoning": read_think(fields),
        "logprobs": fields.flag("logprobs"),
        "top_logprobs": fields.integer("top_logprobs"),
    }
    extra = {name: value for name, value in fields.rest().items() if value is not None}
    if rest:
        extra["options"] = rest
    return ChatCall(
        dialect=NAME,
        model=model,
        instructions=instructions,
        messages=messages,
        stream=stream,
        stream_usage=stream,
        extra=extra,
        **call,
        **said,
    )


def _conversation(messages: list[Fields]) -> tuple[tuple[Text, ...], tuple[Message, ...]]:
    waiting = WaitingCalls()
    turns = [_message(message, waiting) for message in messages]
    first = next((at for at, turn in enumerate(turns) if not _is_instruction(turn)), len(turns))
    instructions = [part for turn in turns[:first] for part in turn.parts]
    return tuple(
        instruction for instruction in instructions if isinstance(instruction, Text)
    ), tuple(turns[first:])


def _is_instruction(message: Message) -> bool:
    return message.extra == {"role": "system"} and all(
        isinstance(part, Text) for part in message.parts
    )


def _message(message: Fields, waiting: WaitingCalls) -> Message:
    role = (message.text("role") or "").lower()
    content = message.text("content") or ""
    texts = (Text(text=content),) if content else ()
    images = read_images(message)
    if role == "tool":
        name = message.text("tool_name") or message.text("name") or ""
        given = message.text("tool_call_id")
        known = None if given is None else carried_id.unpack(given)[0]
        answered, name = waiting.answered(name, known)
        result = ToolResult(call_id=answered, content=(*images, *texts), name=name)
        return Message(role="tool", parts=(result,), extra=_extra(message))
    if role == "assistant":
        calls = _tool_calls(message, waiting)
        parts = (*_thoughts(message), *texts, *images, *calls)
        return Message(role="assistant", parts=parts, extra=_extra(message))
    if role == "user":
        return Message(role="user", parts=(*images, *texts), extra=_extra(message))
    if role in _SYSTEM:
        extra = {**_extra(message), "role": "system"}
        return Message(role="user", parts=(*images, *texts), extra=extra)
    raise message.wrong("role", role, 'one of "system", "user", "assistant" and "tool"')


def _extra(message: Fields) -> dict[str, Any]:
    return {name: value for name, value in message.rest().items() if value is not None}


def _thoughts(message: Fields) -> list[Thinking]:
    """Thoughts: signed ones in `reasoning_details`, bare text in `thinking`."""
    text = message.text("thinking")
    return read_details(message.raw("reasoning_details")) or ([Thinking(text=text)] if text else [])


def _tool_calls(message: Fields, waiting: WaitingCalls) -> list[ToolCall]:
    calls = []
    for number, call in enumerate(message.objects("tool_calls")):
        function = call.mapping("function")
        name = function.text("name") if function is not None else None
        if function is None or not name:
            raise call.missing("function.name", "name the function that was called")
        given = call.text("id")
        signature: Signature | None = None
        if given:
            given, signature = carried_id.unpack(given)
        calls.append(
            ToolCall(
                id=given or call_id(waiting.turn, number),
                name=name,
                arguments=_arguments(function),
                signature=signature,
            )
        )
    waiting.take(calls)
    return calls


def _arguments(function: Fields) -> str:
    """An object, as Ollama wants it, or its JSON as text, as clients of OpenAI's API send it."""
    value = function.raw("arguments")
    if value is None:
        return "{}"
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise function.wrong("arguments", value, "an object")
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise RequestError(
            f"{function.at('arguments')}: is nested too deeply", param=function.at("arguments")
        ) from None


def _tool(tool: Fields) -> Tool:
    kind = tool.text("type")
    if kind not in (None, "function"):
        raise tool.wrong("type", kind, 'a kind of tool that Ollama has; "function" is the only one')
    function = tool.mapping("function")
    name = function.text("name") if function is not None else None
    if function is None or not name:
        raise tool.missing("function.name", "name the function that may be called")
    parameters = function.mapping("parameters")
    return Tool(
        name=name,
        description=function.text("description"),
        parameters=parameters.rest() if parameters is not None else {},
        strict=function.flag("strict"),
    )


def _output(fields: Fields) -> OutputFormat | None:
    """`format`: "json", a schema, or "" as older clients send it for none."""
    value = fields.raw("format")
    if value is None or value == "":
        return None
    if value == "json":
        return OutputFormat(kind="json")
    if isinstance(value, dict):
        return OutputFormat(kind="schema", schema=value)
    raise fields.wrong("format", value, '"json" or a JSON schema')
