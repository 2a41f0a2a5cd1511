"""Reasoning items: summaries, thoughts themselves, and what only their maker can read.

Each text is a Thinking with the item's id. `encrypted_content` of this API's own providers is one
more, without a text: it is the whole item's, and other dialects have a place for it. A signature of
another vendor is of the one text that it came with.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.values import objects, text
from headrace.protocol.neutral.part import Signature, Thinking


def reasoning_parts(
    item: dict[str, Any], signature: Signature | None, *, of_text: bool = False
) -> list[Thinking]:
    """The thoughts in a reasoning item, [] for an empty one.

    signature: its encrypted_content. of_text: it is of the last text and not of the item.
    """
    id = foreign_id(text(item.get("id")))
    parts = [
        Thinking(text=text(inner.get("text")), summary=summary, id=id)
        for name, summary in (("summary", True), ("content", False))
        for inner in objects(item.get(name))
    ]
    if signature is None:
        return parts
    if parts and of_text:
        last = parts.pop()
        signed = Thinking(text=last.text, summary=last.summary, id=id, signature=signature)
        return [*parts, signed]
    return [*parts, sealed_thought(signature, id)]


def sealed_thought(signature: Signature, id: str | None) -> Thinking:
    """The encrypted part of an item."""
    return Thinking(text="", signature=signature, redacted=True, id=id)


def reasoning_item(parts: list[Thinking], id: str | None) -> dict[str, Any]:
    """The item that `parts` are, but for its encrypted_content."""
    shown = [part for part in parts if not part.redacted]
    item: dict[str, Any] = {"type": "reasoning"}
    if id is not None:
        item["id"] = id
    item["summary"] = [
        {"type": "summary_text", "text": thought.text} for thought in shown if thought.summary
    ]
    if content := [thought for thought in shown if not thought.summary]:
        item["content"] = [{"type": "reasoning_text", "text": thought.text} for thought in content]
    return item
