"""A client's request, from bytes to a ChatCall.

The header anthropic-beta goes into `extra` as the list "betas"; a writer of this dialect makes the
header of it again. A system message between the turns stays where it is, as a user's message with
`extra` {"role": "system"}. Effort "max" is more than the neutral form can say: it is read as
"xhigh", and the word itself is kept in `extra` {"output_config": {"effort": "max"}}.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.errors import RequestError
from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.anthropic.request.fields import (
    Json,
    refuse,
    want_count,
    want_flag,
    want_list,
    want_name,
    want_object,
    want_one_of,
    want_share,
    want_text,
)
from headrace.protocol.dialects.anthropic.request.read_blocks import read_content, read_texts
from headrace.protocol.dialects.anthropic.request.thinking import check_budget, read_reasoning
from headrace.protocol.dialects.anthropic.request.tools import read_tool_choice, read_tools
from headrace.protocol.dialects.anthropic.values import BETAS, NAME, header, rest
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Reasoning
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.part import Part, ToolResult

_KNOWN = frozenset(
    {
        "model",
        "messages",
        "system",
        "max_tokens",
        "metadata",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "service_tier",
    }
)
_MESSAGE = frozenset({"role", "content"})
_USER_ID = frozenset({"user_id"})


def read_call(body: bytes, headers: Headers, *, counting: bool) -> ChatCall:
    """counting: a request to count_tokens, which has no max_tokens.

    Raises RequestError naming the field at fault.
    """
    try:
        call = _read_call(_object(body), headers, counting=counting)
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    check_budget(call)
    return call


def _object(body: bytes) -> Json:
    values = decode_object(body)
    return {key: value for key, value in values.items() if value is not None}


def _read_call(values: Json, headers: Headers, *, counting: bool) -> ChatCall:
    extra = rest(values, _KNOWN)
    if betas := [
        one for raw in header(headers, "anthropic-beta").split(",") if (one := raw.strip())
    ]:
        extra[BETAS] = betas
    for name in ("model", "messages") if counting else ("model", "messages", "max_tokens"):
        if name not in values:
            raise RequestError(f"{name}: this field is required", param=name)
    choice = read_tool_choice(values.get("tool_choice"))
    config = want_object(values.get("output_config", {}), "output_config")
    reasoning = read_reasoning(values.get("thinking"), config, extra)
    stream = want_flag(values.get("stream", False), "stream")
    return ChatCall(
        dialect=NAME,
        model=want_name(values["model"], "model"),
        messages=tuple(_messages(values["messages"])),
        instructions=read_texts(values.get("system", []), "system"),
        tools=read_tools(values.get("tools", [])),
        tool_choice=choice.choice,
        parallel_tool_calls=choice.parallel,
        # None at all fill the prompt cache alone.
        max_tokens=_count(values, "max_tokens", least=0),
        temperature=_share(values, "temperature"),
        top_p=_share(values, "top_p"),
        top_k=_count(values, "top_k", least=0),
        stop=_stop(values.get("stop_sequences", [])),
        output=_output(values, config),
        reasoning=reasoning,
        user=_user(values.get("metadata"), extra),
        service_tier=_service_tier(values),
        stream=stream,
        # Events of this dialect always tell the usage.
        stream_usage=stream,
        # The API keeps nothing: its clients send thoughts back, whoever thought them.
        thought_signatures=True if _thinks(reasoning) else None,
        extra=extra,
    )


def _thinks(reasoning: Reasoning | None) -> bool:
    return reasoning is not None and reasoning.budget_tokens != 0


def _messages(value: object) -> Iterator[Message]:
    items = want_list(value, "messages")
    if not items:
        refuse("messages", "[] is empty; send at least one message")
    for index, item in enumerate(items):
        path = f"messages[{index}]"
        message = want_object(item, path)
        role = want_one_of(message.get("role"), f"{path}.role", ("user", "assistant", "system"))
        parts = read_content(message.get("content"), f"{path}.content")
        extra = rest(message, _MESSAGE)
        if role == "assistant":
            yield Message(role="assistant", parts=parts, extra=extra)
        elif role == "system":
            yield Message(role="user", parts=parts, extra={**extra, "role": "system"})
        else:
            yield from _user_turns(parts, extra)


def _user_turns(parts: tuple[Part, ...], extra: Json) -> Iterator[Message]:
    """The user's turns: results of tools become turns of their own; the parts between them keep
    their places."""
    start = 0
    for at in range(1, len(parts) + 1):
        of_tools = isinstance(parts[start], ToolResult)
        if at < len(parts) and isinstance(parts[at], ToolResult) == of_tools:
            continue
        yield Message(
            role="tool" if of_tools else "user",
            parts=parts[start:at],
            extra={} if start else extra,
        )
        start = at
    if not parts:
        yield Message(role="user", parts=(), extra=extra)


def _count(values: Json, name: str, *, least: int) -> int | None:
    return want_count(values[name], name, least=least) if name in values else None


def _share(values: Json, name: str) -> float | None:
    return want_share(values[name], name) if name in values else None


def _stop(value: object) -> tuple[str, ...]:
    items = enumerate(want_list(value, "stop_sequences"))
    return tuple(want_text(stop, f"stop_sequences[{index}]") for index, stop in items)


def _output(values: Json, config: Json) -> OutputFormat | None:
    """output_config.format; output_format is its name from when it was a beta."""
    path, value = "output_config.format", config.get("format")
    if value is None:
        path, value = "output_format", values.get("output_format")
    if value is None:
        return None
    form = want_object(value, path)
    want_one_of(form.get("type"), f"{path}.type", ("json_schema",))
    return OutputFormat(kind="schema", schema=want_object(form.get("schema"), f"{path}.schema"))


def _user(value: object, extra: Json) -> str | None:
    if value is None:
        return None
    metadata = want_object(value, "metadata")
    if more := rest(metadata, _USER_ID):
        extra["metadata"] = more
    user = metadata.get("user_id")
    return None if user is None else want_text(user, "metadata.user_id")


def _service_tier(values: Json) -> str | None:
    value: Any = values.get("service_tier")
    return None if value is None else want_text(value, "service_tier")
