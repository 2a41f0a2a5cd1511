"""Items of a provider's output as parts of the neutral form."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.text_parts import message_parts
from headrace.protocol.dialects.openai_responses.thoughts import reasoning_parts
from headrace.protocol.dialects.openai_responses.values import DIALECT, rest, text
from headrace.protocol.neutral.part import Opaque, Part, Signature, ToolCall

_CALL = frozenset({"type", "id", "call_id", "name", "arguments", "status"})


def item_parts(item: dict[str, Any], origin: str) -> list[Part]:
    """A whole item. origin: whose encrypted_content it holds."""
    kind = item.get("type")
    if kind == "message":
        return message_parts(item)
    if kind == "function_call" and text(item.get("name")):
        return [tool_call(item)]
    if kind == "reasoning":
        thoughts = reasoning_parts(item, encrypted(item, origin))
        # An empty one says nothing to others, but its own provider misses it.
        return [*thoughts] if thoughts else [Opaque(DIALECT, item)]
    return [Opaque(DIALECT, item)]


def encrypted(item: dict[str, Any], origin: str) -> Signature | None:
    """The signature of a reasoning item."""
    value = text(item.get("encrypted_content"))
    return Signature(origin, value) if value else None


def tool_call(item: dict[str, Any]) -> ToolCall:
    """A function call. The item's own id is no call's: results name the call_id."""
    return ToolCall(
        id=text(item.get("call_id")) or text(item.get("id")),
        name=text(item.get("name")),
        arguments=text(item.get("arguments")),
        extra=call_extra(item),
    )


def call_extra(item: dict[str, Any]) -> dict[str, Any]:
    """Fields of a function call's item beyond the call."""
    extra = rest(item, _CALL)
    if id := text(item.get("id")):
        extra["item_id"] = id
    return extra
