"""Calls of other dialects, and what this one makes of them."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.anthropic import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    Message,
)
from headrace.protocol.neutral.part import (
    Part,
    Text,
    ToolResult,
)

MODEL = "claude-sonnet-4-5"
HI = (Message(role="user", parts=(Text(text="hi"),)),)


def written(
    *messages: Message, model: str = MODEL, **fields: Any
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body and what was dropped."""
    fields = {"dialect": "openai_chat", "model": "m", "messages": messages or HI} | fields
    out = PROVIDER.write_call(ChatCall(**fields), model)
    return json.loads(out.body), out.dropped


def user(*parts: Part | str, **fields: Any) -> Message:
    return Message(role="user", parts=_parts(parts), **fields)


def assistant(*parts: Part | str) -> Message:
    return Message(role="assistant", parts=_parts(parts))


def results(*parts: ToolResult) -> Message:
    return Message(role="tool", parts=parts)


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(Text(text=one) if isinstance(one, str) else one for one in parts)


def text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
