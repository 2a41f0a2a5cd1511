"""A reply for a client of this dialect.

What a client keeps for the next turn carries what other vendors signed: a thinking block's
signature, a tool call's id (neutral/carried_id.py). Of several choices the first is written, the
API having one. Recordings the model made have no block and are left out; pictures are written as
the image block that requests have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.anthropic.media import write_media
from headrace.protocol.dialects.anthropic.reply.citations import write_citations
from headrace.protocol.dialects.anthropic.reply.finish import kept_fields, write_finish
from headrace.protocol.dialects.anthropic.reply.usage import usage_at_start, write_usage
from headrace.protocol.dialects.anthropic.signatures import write_signature
from headrace.protocol.dialects.anthropic.values import NAME, encoded, input_of, mapping
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import ChatReply, Choice

_CITATIONS = (
    "char_location",
    "page_location",
    "content_block_location",
    "web_search_result_location",
    "search_result_location",
)


def write_reply(reply: ChatReply) -> bytes:
    """The body of a 200."""
    choice = reply.choices[0] if reply.choices else Choice()
    content = [block for part in choice.parts if (block := reply_block(part)) is not None]
    kept = kept_fields(choice.extra)
    with_tools = any(block["type"] == "tool_use" for block in content)
    body: dict[str, Any] = {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": write_finish(
            choice.finish, choice.stop_sequence, choice.extra, with_tools=with_tools
        ),
        "stop_sequence": choice.stop_sequence,
        "usage": write_usage(
            reply.usage,
            reply.service_tier,
            usage_at_start(reply.extra) | mapping(kept.pop("usage", None)),
        ),
    }
    return encoded(body | kept)


def write_token_count(tokens: int) -> bytes:
    """The reply of count_tokens."""
    return encoded({"input_tokens": tokens})


def reply_block(part: Part) -> dict[str, Any] | None:
    """The block of a part; None for a part that this dialect has no block for."""
    if isinstance(part, Text):
        block: dict[str, Any] = {"type": "text", "text": part.text}
        if found := citations(part.extra, part.citations):
            block["citations"] = found
        return block
    if isinstance(part, Refusal):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolCall):
        return tool_use(part.id, part.name, part.signature, part.extra) | {
            "input": input_of(part.arguments)
        }
    if isinstance(part, Thinking):
        signature = write_signature(part)
        if part.redacted:
            return {"type": "redacted_thinking", "data": signature} if signature else None
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    if isinstance(part, Media) and part.kind == "image":
        return write_media(part, "content", own=True)
    return part.value if isinstance(part, Opaque) and part.dialect == NAME else None


def tool_use(
    id: str, name: str, signature: Signature | None, extra: dict[str, Any]
) -> dict[str, Any]:
    """The block without its input."""
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": carried_id.pack(id, signature),
        "name": name,
        "input": {},
    }
    if isinstance(caller := extra.get("caller"), dict):
        block["caller"] = caller
    return block


def citations(extra: dict[str, Any], sources: Iterable[Citation]) -> list[dict[str, Any]]:
    """Citations of a text: those that are in this dialect's form, else those of another's."""
    found = extra.get("citations")
    own = [
        citation
        for citation in (found if isinstance(found, list) else ())
        if isinstance(citation, dict) and citation.get("type") in _CITATIONS
    ]
    return own or write_citations(sources)
