"""A whole answer as OpenAI's `chat.completion`.

Signed and hidden thoughts go into `reasoning_details`, the text of all thoughts into
`reasoning_content`. What OpenAI always has is always there: content and refusal, if only as null.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.reply.finish import finish_if_silent, write_finish
from headrace.protocol.dialects.openai_chat.reply.usage import write_usage
from headrace.protocol.dialects.openai_chat.reply.write_part import (
    is_custom_call,
    write_image,
    write_sound,
    write_text_fields,
    write_tool_call,
)
from headrace.protocol.dialects.openai_chat.thoughts import write_call_signature, write_details
from headrace.protocol.dialects.openai_chat.values import DIALECT, add_missing, mapping
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.part import Media, Opaque, Refusal, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

# Kept beside, not fields of their own.
_BESIDE_TOP = frozenset({"usage"})
_BESIDE_CHOICE = frozenset({"message", "finish_reason", "logprobs"})


def write_reply(reply: ChatReply, call: ChatCall) -> bytes:
    """The body of a 200. `created` is 0 if unknown."""
    own = reply.dialect == DIALECT
    extra = reply.extra if own else {}
    written: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created_s or 0,
        "model": reply.model,
        "choices": [
            _choice(choice, own=own, legacy=call.legacy_functions) for choice in reply.choices
        ],
    }
    if reply.usage is not None:
        written["usage"] = write_usage(reply.usage, mapping(extra.get("usage")))
    if reply.service_tier is not None:
        written["service_tier"] = reply.service_tier
    for name, value in extra.items():
        if name not in _BESIDE_TOP:
            written.setdefault(name, value)
    return msgspec.json.encode(written)


def _choice(choice: Choice, *, own: bool, legacy: bool) -> dict[str, Any]:
    extra = choice.extra if own else {}
    refused = any(isinstance(part, Refusal) for part in choice.parts)
    told = any(isinstance(part, Text) for part in choice.parts)
    logprobs: dict[str, Any] | None = None
    if choice.logprobs is not None:
        of_refusal = refused and not told
        logprobs = {
            "content": None if of_refusal else choice.logprobs,
            "refusal": choice.logprobs if of_refusal else None,
        }
    called = any(isinstance(part, ToolCall) or is_custom_call(part) for part in choice.parts)
    finish = choice.finish or finish_if_silent(called)
    written: dict[str, Any] = {
        "index": choice.index,
        "message": _message(choice, extra, own=own, legacy=legacy),
        "logprobs": logprobs,
        "finish_reason": write_finish(finish, extra, legacy=legacy),
    }
    if choice.stop_sequence is not None:
        written["stop_reason"] = choice.stop_sequence
    for name, value in extra.items():
        if name not in _BESIDE_CHOICE:
            written.setdefault(name, value)
    return written


def _message(choice: Choice, extra: dict[str, Any], *, own: bool, legacy: bool) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    refusals: list[str] = []
    calls: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    signed = False
    characters = 0
    for part in choice.parts:
        if isinstance(part, Text):
            texts.append(part.text)
            length = len(part.text)
            fields = write_text_fields(part.extra, part.citations, characters, length, own=own)
            characters += length
            for name, value in fields.items():
                _gather(more, name, value)
            if part.signature is not None:
                more["extra_content"] = write_call_signature(part.signature)
        elif isinstance(part, Thinking):
            thoughts.append(part.text)
            signed = signed or part.signature is not None or part.redacted
        elif isinstance(part, Refusal):
            refusals.append(part.text)
        elif isinstance(part, ToolCall):
            calls.append(write_tool_call(part, own=own))
        elif is_custom_call(part) and isinstance(part, Opaque):
            calls.append(part.value)
        elif isinstance(part, Media) and part.kind == "image":
            images.append(write_image(part, len(images)))
        elif isinstance(part, Media) and part.kind == "audio":
            more["audio"] = write_sound(part)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if signed:
        message["reasoning_details"] = write_details(choice.parts)
    if calls and legacy and "function" in calls[0]:
        message["function_call"] = calls[0]["function"]
        calls = calls if len(calls) > 1 else []
    if calls:
        message["tool_calls"] = calls
    if images:
        message["images"] = images
    message.update(more)
    add_missing(message, mapping(extra.get("message")))
    return message


def _gather(more: dict[str, Any], name: str, value: Any) -> None:
    """Extra fields of several texts become one message's: lists go on, the rest is the first's."""
    before = more.get(name)
    if isinstance(before, list) and isinstance(value, list):
        before.extend(value)
    elif name not in more:
        more[name] = list(value) if isinstance(value, list) else value
