"""A whole answer as OpenAI's `text_completion`. Thoughts and tool calls have no place in it."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.reply.usage import write_usage
from headrace.protocol.dialects.openai_completions.logprobs import write_columns
from headrace.protocol.dialects.openai_completions.values import DIALECT, OBJECT
from headrace.protocol.neutral.part import Refusal, Text
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish

_REASONS: dict[Finish, str] = {"tool_calls": "stop", "pause": "stop"}


def write_reply(reply: ChatReply) -> bytes:
    """The body of a 200. `created` is 0 if unknown."""
    own = reply.dialect == DIALECT
    written: dict[str, Any] = {
        "id": reply.id,
        "object": OBJECT,
        "created": reply.created_s or 0,
        "model": reply.model,
        "choices": [_choice(choice, own=own) for choice in reply.choices],
    }
    extra = reply.extra if own else {}
    if reply.usage is not None:
        usage = extra.get("usage")
        written["usage"] = write_usage(reply.usage, usage if isinstance(usage, dict) else {})
    for name, value in extra.items():
        written.setdefault(name, value)
    return msgspec.json.encode(written)


def write_finish(reason: Finish | None) -> str:
    """ "stop", "length" or "content_filter"."""
    return "stop" if reason is None else _REASONS.get(reason, reason)


def _choice(choice: Choice, *, own: bool) -> dict[str, Any]:
    text = "".join(part.text for part in choice.parts if isinstance(part, Text | Refusal))
    written: dict[str, Any] = {
        "text": text,
        "index": choice.index,
        "logprobs": write_columns(choice.logprobs, 0) if own and choice.logprobs else None,
        "finish_reason": write_finish(choice.finish),
    }
    if choice.stop_sequence is not None:
        written["stop_reason"] = choice.stop_sequence
    for name, value in (choice.extra if own else {}).items():
        written.setdefault(name, value)
    return written
