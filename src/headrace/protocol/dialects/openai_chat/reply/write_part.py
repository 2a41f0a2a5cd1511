"""Parts of an answer as fields of a message, or of a delta that has all of the part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.protocol.dialects.openai_chat.media import data_uri
from headrace.protocol.dialects.openai_chat.reply.citations import write_annotations
from headrace.protocol.dialects.openai_chat.thoughts import write_call_signature
from headrace.protocol.dialects.openai_chat.values import DIALECT
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.part import Media, Opaque, Part, ToolCall


def write_tool_call(call: ToolCall, *, own: bool) -> dict[str, Any]:
    """An entry of `tool_calls`. own: whether its extra fields are of this dialect."""
    written: dict[str, Any] = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
    if call.signature is not None:
        written["extra_content"] = write_call_signature(call.signature)
    return {**call.extra, **written} if own else written


def write_image(media: Media, index: int) -> dict[str, Any]:
    """An entry of `images`, as OpenRouter lists generated pictures."""
    image: dict[str, Any] = {
        "type": "image_url",
        "image_url": {"url": data_uri(media)},
        "index": index,
    }
    if media.signature is not None:
        image["extra_content"] = write_call_signature(media.signature)
    return image


def write_sound(media: Media) -> dict[str, Any]:
    """The `audio` of a message. Fields that another dialect lacks are empty."""
    empty = {"id": "", "expires_at": 0, "transcript": ""}
    told = {name: media.extra.get(name, value) for name, value in empty.items()}
    return {**told, "data": media.data or ""}


def write_text_fields(
    extra: dict[str, Any], citations: Iterable[Citation], begins: int, length: int, *, own: bool
) -> dict[str, Any]:
    """Further fields of a text as those of a message: all of this dialect's, else its citations.

    The text of `length` characters begins at `begins` in the message's content.
    """
    if own:
        return extra
    cited = write_annotations(citations, begins, length)
    return {"annotations": cited} if cited else {}


def is_custom_call(part: Part) -> bool:
    """A call of a custom tool, which only this dialect has."""
    return (
        isinstance(part, Opaque) and part.dialect == DIALECT and part.value.get("type") == "custom"
    )
