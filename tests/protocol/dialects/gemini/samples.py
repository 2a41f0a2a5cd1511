"""Calls, answers and streams, short and made by hand."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.gemini import PROVIDER, GeminiProvider
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.event import Event
from headrace.protocol.neutral.part import Part, Text
from headrace.protocol.neutral.reply import ChatReply
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut


def user(*parts: Part | str) -> Message:
    """A user's turn."""
    return Message(role="user", parts=_parts(parts))


def assistant(*parts: Part | str) -> Message:
    """A model's turn."""
    return Message(role="assistant", parts=_parts(parts))


def tool(*parts: Part) -> Message:
    """Results of tools."""
    return Message(role="tool", parts=parts)


def a_call(*messages: Message, **fields: Any) -> ChatCall:
    """A call read from OpenAI's dialect."""
    fields.setdefault("dialect", "openai-chat")
    return ChatCall(model="asked", messages=messages or (user("hi"),), **fields)


def written(
    call: ChatCall, model: str = "gemini-2.5-flash", provider: GeminiProvider = PROVIDER
) -> dict[str, Any]:
    """The body of the request."""
    body: dict[str, Any] = json.loads(provider.write_call(call, model).body)
    return body


def dropped(call: ChatCall, model: str = "gemini-2.5-flash") -> tuple[str, ...]:
    """What the request does not say."""
    return PROVIDER.write_call(call, model).dropped


def answer(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    """A reply with one candidate."""
    held = {"content": {"parts": list(parts), "role": "model"}, "index": 0, **candidate}
    return {"candidates": [held], "responseId": "r1", "modelVersion": "gemini-3-flash"}


def whole(*parts: dict[str, Any], reason: str = "STOP", **candidate: Any) -> ChatReply:
    """The reply read."""
    body = json.dumps(answer(*parts, finishReason=reason, **candidate)).encode()
    return PROVIDER.read_reply(body)


def stream(*pieces: dict[str, Any]) -> bytes:
    """A stream as Google writes it."""
    return b"".join(b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in pieces)


def events_of(*pieces: dict[str, Any]) -> list[Event]:
    """The events of a stream, the same at every cut and in good grammar."""
    events = read_at_every_cut(lambda: PROVIDER.stream_reader(a_call()), stream(*pieces))
    assert_grammar(events)
    return events


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(text=one) if isinstance(one, str) else one for one in parts)
