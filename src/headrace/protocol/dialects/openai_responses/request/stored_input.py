"""A request's input as the items that a server keeps: each with an id of ours, and texts as parts.

They are read again as what they were, so that a later turn's prompt begins as this one's.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.ids import input_item_id

_PREFIXES = {"message": "msg", "reasoning": "rs", "image_generation_call": "ig"}


def stored_input(value: Any, response: str) -> list[dict[str, Any]]:
    """The items of `input` as it was read before. response: the id of the answer to it."""
    if value is None:
        return []
    given = [{"role": "user", "content": value}] if isinstance(value, str) else value
    return [_item(item, response, index) for index, item in enumerate(given)]


def _item(item: dict[str, Any], response: str, index: int) -> dict[str, Any]:
    kind = item.get("type") or "message"
    prefix = _PREFIXES.get(kind, "fc")
    kept = {**item, "id": input_item_id(prefix, response, index), "type": kind}
    if kind == "message":
        kept.setdefault("status", "completed")
        content = item.get("content")
        if isinstance(content, str):
            kept["content"] = [_text(content, item.get("role"))]
    elif kind.startswith("function_call"):
        kept.setdefault("status", "completed")
    return kept


def _text(text: str, role: object) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}
