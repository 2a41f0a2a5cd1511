"""A provider's reply, from bytes to a ChatReply."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.media import read_media
from headrace.protocol.dialects.anthropic.reply.citations import read_citations
from headrace.protocol.dialects.anthropic.reply.finish import answer_extra, read_finish
from headrace.protocol.dialects.anthropic.reply.usage import (
    read_tier,
    read_usage,
    start_extra,
    unread_usage,
)
from headrace.protocol.dialects.anthropic.values import (
    NAME,
    arguments_of,
    count,
    decoded,
    mapping,
    rest,
    text,
)
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Opaque, Part, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

MESSAGE = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
)
"""Fields of a message that have a neutral form."""

_TEXT = frozenset({"type", "text"})
_TOOL_USE = frozenset({"type", "id", "name", "input"})


def read_reply(body: bytes) -> ChatReply:
    """Raises DamagedReplyError if it is not a message."""
    try:
        message = decoded(body)
        if not isinstance(message, dict) or message.get("type") == "error":
            raise DamagedReplyError("the reply is not an Anthropic message")
        return _reply(message)
    except RecursionError:
        raise DamagedReplyError("the reply is nested too deeply") from None
    except DamagedReplyError:
        raise
    except ValueError as error:
        raise DamagedReplyError(f"the reply is not valid JSON: {error}") from None


def read_token_count(body: bytes) -> int:
    """A reply of count_tokens; raises DamagedReplyError if it is none."""
    try:
        value = decoded(body)
    except ValueError as error:
        raise DamagedReplyError(f"the reply is not valid JSON: {error}") from None
    tokens = count(mapping(value).get("input_tokens"))
    if tokens is None:
        raise DamagedReplyError("the reply has no input_tokens")
    return tokens


def _reply(message: dict[str, Any]) -> ChatReply:
    content = message.get("content")
    if not isinstance(content, list) or not all(
        isinstance(content_block, dict) for content_block in content
    ):
        raise DamagedReplyError("the reply's content is not a list of blocks")
    usage = mapping(message.get("usage"))
    start = start_extra(usage)
    reason, stop_sequence = message.get("stop_reason"), message.get("stop_sequence")
    fields = rest(message, MESSAGE) | {"usage": unread_usage(usage, start)}
    choice = Choice(
        parts=tuple(read_part(block) for block in content),
        finish=read_finish(reason),
        stop_sequence=text(stop_sequence) or None,
        extra=answer_extra(reason, stop_sequence, fields),
    )
    return ChatReply(
        dialect=NAME,
        id=text(message.get("id")),
        model=text(message.get("model")),
        choices=(choice,),
        usage=read_usage(usage),
        service_tier=read_tier(usage),
        extra=start,
    )


def read_part(block: dict[str, Any]) -> Part:
    """A block of an answer; raises DamagedReplyError for one that is not as it must be."""
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        raise DamagedReplyError("a block of the reply has no type")
    if kind == "text" and isinstance(block.get("text"), str):
        listed = block.get("citations")
        citations = read_citations(listed) if isinstance(listed, list) else ()
        return Text(text=block["text"], citations=citations, extra=text_extra(block))
    if kind == "tool_use":
        return tool_call(block)
    if kind == "thinking":
        return Thinking(
            text=text(block.get("thinking")), signature=own_signature(block.get("signature"))
        )
    if kind == "redacted_thinking":
        return Thinking(text="", signature=own_signature(block.get("data")), redacted=True)
    media = read_media(block, None) if kind == "image" else None
    return media or Opaque(NAME, block)


def tool_call(block: dict[str, Any]) -> ToolCall:
    """Raises DamagedReplyError without an id or a name."""
    call_id, name = text(block.get("id")), text(block.get("name"))
    if not call_id or not name:
        raise DamagedReplyError("a tool_use block of the reply has no id or no name")
    return ToolCall(
        id=call_id,
        name=name,
        arguments=arguments_of(block.get("input")),
        extra=rest(block, _TOOL_USE),
    )


def text_extra(block: dict[str, Any]) -> dict[str, Any]:
    """A text block's other fields: citations, if there are any."""
    return {key: value for key, value in rest(block, _TEXT).items() if value != []}


def own_signature(value: object) -> Signature | None:
    """A signature that Anthropic, or who speaks like it, gave."""
    return Signature(NAME, value) if isinstance(value, str) and value else None
