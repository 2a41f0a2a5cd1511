"""Small bodies in OpenAI's format, and the ways to read and write them."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.openai_chat import CLIENT, PRESETS, OpenAIChatProvider
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import Event
from headrace.protocol.neutral.reply import ChatReply

OPENAI = OpenAIChatProvider(PRESETS["openai"])
GENERIC = OpenAIChatProvider(PRESETS["generic"])
OPENROUTER = OpenAIChatProvider(PRESETS["openrouter"])
USER = {"role": "user", "content": "Hi"}


def read(**fields: Any) -> ChatCall:
    """The call that a body is; with a model and a message if it has none."""
    body = {"model": "m", "messages": [USER], **fields}
    return CLIENT.read_call(json.dumps(body).encode(), "/v1/chat/completions", {})


def written(call: ChatCall, variant: str = "openai") -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body for a provider of a preset, and what was dropped."""
    request = OpenAIChatProvider(PRESETS[variant]).write_call(call, "theirs")
    return json.loads(request.body), request.dropped


def reply_body(message: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A reply with one choice. choice: fields of the choice beside its message."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello", **(message or {})},
        "finish_reason": "stop",
        **fields.pop("choice", {}),
    }
    top = {"id": "r1", "object": "chat.completion", "created": 17, "model": "m"}
    return {**top, "choices": [choice], **fields}


def read_body(body: dict[str, Any]) -> ChatReply:
    """The neutral form of a reply's body."""
    return GENERIC.read_reply(json.dumps(body).encode())


def delta(finish: str | None = None, *, index: int = 0, **fields: Any) -> dict[str, Any]:
    """A chunk with one choice. Names that begin with top_ are the chunk's own fields."""
    top = {name[4:]: fields.pop(name) for name in list(fields) if name.startswith("top_")}
    choice = {"index": index, "delta": fields, "finish_reason": finish}
    return {
        "id": "r1",
        "object": "chat.completion.chunk",
        "created": 17,
        "model": "m",
        "choices": [choice],
        **top,
    }


def call_delta(*calls: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A chunk with pieces of tool calls."""
    return delta(finish, tool_calls=list(calls))


def sse(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    """A stream of chunks; a string is put in as it is."""
    parts = [one if isinstance(one, str) else f"data: {json.dumps(one)}\n\n" for one in chunks]
    return ("".join(parts) + ("data: [DONE]\n\n" if done else "")).encode()


def stream_bytes(call: ChatCall, events: list[Event]) -> bytes:
    """What a client reads."""
    writer = CLIENT.stream_writer(call)
    return b"".join(writer.write(event) for event in events)


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """The chunks of a written stream, after asserting its frame: data lines, [DONE] once, last."""
    lines = stream.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    data = [line.removeprefix("data: ") for line in lines]
    if data[-1] == "[DONE]":
        data.pop()
    assert "[DONE]" not in data
    return [json.loads(one) for one in data]
