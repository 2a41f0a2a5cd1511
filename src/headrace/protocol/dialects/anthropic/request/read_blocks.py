"""Content of a client's messages, from blocks to parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.protocol.dialects.anthropic.media import read_media
from headrace.protocol.dialects.anthropic.request.cache_marks import read_mark
from headrace.protocol.dialects.anthropic.request.fields import (
    want_flag,
    want_list,
    want_name,
    want_object,
    want_text,
)
from headrace.protocol.dialects.anthropic.signatures import read_signature
from headrace.protocol.dialects.anthropic.values import NAME, arguments_of, rest
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

BLOCK = "block"
"""Field of Text.extra with a block that has no neutral form and text to be read.

The text is what other models can read of it; a writer of this dialect puts the block back.
"""

_TEXT = frozenset({"type", "text", "cache_control"})
_TOOL_USE = frozenset({"type", "id", "name", "input", "cache_control"})


def read_content(content: object, path: str) -> tuple[Part, ...]:
    """`content` of a message, a string or blocks."""
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(_part(block, at) for block, at in _blocks(content, path))


def read_texts(content: object, path: str) -> tuple[Text, ...]:
    """`system`: a string or blocks of text alone."""
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(_text(block, at) for block, at in _blocks(content, path))


def _blocks(content: object, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    for index, item in enumerate(want_list(content, path)):
        at = f"{path}[{index}]"
        block = want_object(item, at)
        want_name(block.get("type"), f"{at}.type")
        yield block, at


def _part(block: dict[str, Any], path: str) -> Part:
    match block["type"]:
        case "text":
            return _text(block, path)
        case "image" | "document":
            return read_media(block, read_mark(block, path)) or _in_words(block, path)
        case "search_result":
            return _in_words(block, path)
        case "tool_use":
            return _tool_call(block, path)
        case "tool_result":
            return _tool_result(block, path)
        case "thinking":
            thought = want_text(block.get("thinking"), f"{path}.thinking")
            signature = want_text(block.get("signature") or "", f"{path}.signature")
            carried = read_signature(signature)
            return Thinking(
                text=thought,
                signature=carried.signature,
                summary=carried.summary,
                id=carried.id,
            )
        case "redacted_thinking":
            carried = read_signature(want_text(block.get("data"), f"{path}.data"))
            return Thinking(
                text="",
                signature=carried.signature,
                redacted=True,
                summary=carried.summary,
                id=carried.id,
            )
    return Opaque(NAME, block)


def _in_words(block: dict[str, Any], path: str) -> Text | Opaque:
    """A block as the text in it, and with it; the block alone where it has none."""
    words = "\n".join(_readable(block))
    if not words:
        return Opaque(NAME, block)
    return Text(text=words, cache=read_mark(block, path), extra={BLOCK: block})


def _text(block: dict[str, Any], path: str) -> Text:
    return Text(
        text=want_text(block.get("text"), f"{path}.text"),
        cache=read_mark(block, path),
        extra=rest(block, _TEXT),
    )


def _tool_call(block: dict[str, Any], path: str) -> ToolCall:
    call_id, signature = carried_id.unpack(want_name(block.get("id"), f"{path}.id"))
    return ToolCall(
        id=call_id,
        name=want_name(block.get("name"), f"{path}.name"),
        arguments=arguments_of(want_object(block.get("input"), f"{path}.input")),
        signature=signature,
        cache=read_mark(block, path),
        extra=rest(block, _TOOL_USE),
    )


def _tool_result(block: dict[str, Any], path: str) -> ToolResult:
    call_id, _ = carried_id.unpack(want_name(block.get("tool_use_id"), f"{path}.tool_use_id"))
    content = block.get("content")
    failed = block.get("is_error")
    parts: tuple[Text | Media, ...]
    if content is None:
        parts = ()
    elif isinstance(content, str):
        parts = (Text(text=content),)
    else:
        parts = tuple(_result_part(inner, at) for inner, at in _blocks(content, f"{path}.content"))
    return ToolResult(
        call_id=call_id,
        content=parts,
        is_error=failed is not None and want_flag(failed, f"{path}.is_error"),
        cache=read_mark(block, path),
    )


def _result_part(block: dict[str, Any], path: str) -> Text | Media:
    part = _part(block, path)
    if isinstance(part, Text | Media):
        return part
    return Text(text="\n".join(_readable(block)), extra={BLOCK: block})


def _readable(block: dict[str, Any]) -> Iterator[str]:
    """Strings of a block that people can read: of search results, documents, tool references."""
    for key in ("title", "source", "tool_name", "data", "text"):
        if isinstance(value := block.get(key), str):
            yield value
        elif isinstance(value, dict):
            yield from _readable(value)
    if isinstance(content := block.get("content"), list):
        for item in content:
            if isinstance(item, dict):
                yield from _readable(item)
    elif isinstance(content, str):
        yield content
