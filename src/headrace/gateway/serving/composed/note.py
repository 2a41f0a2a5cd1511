"""A note put into a request's instructions, whatever its dialect."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from headrace.gateway.serving.incoming import Incoming
from headrace.protocol.json_object import JsonObject

_RAW_MESSAGES = msgspec.json.Decoder(list[msgspec.Raw])
# Longer than most answers may be; longer drafts are cut.
_MOST_DRAFT_CHARS = 60_000


def draft_note(draft: str) -> str:
    """The note that gives a fast model's draft to a slow one."""
    return (
        "A smaller model drafted the answer below. It may be wrong or incomplete. Use what is "
        "right in it, correct the rest, and answer the user yourself without mentioning the "
        "draft.\n\n"
        f"<draft>\n{draft[:_MOST_DRAFT_CHARS]}\n</draft>"
    )


def with_note(incoming: Incoming, note: str) -> Incoming:
    """The request with the note; unchanged if its dialect has no place for one."""
    body, name = incoming.body, incoming.side.name
    if name in ("openai-chat", "ollama"):
        changed = _in_messages(body, note)
    elif name == "anthropic":
        changed = _in_text(body, "system", note)
    elif name == "openai-responses":
        changed = _in_text(body, "instructions", note)
    else:
        changed = None
    if changed is None:
        return incoming
    return dataclasses.replace(incoming, body=JsonObject.read(body.edited(changed)))


def _in_messages(body: JsonObject, note: str) -> dict[str, bytes | None] | None:
    """Merged into the first message if that is the system's: models are trained on one of them."""
    raw = body.value("messages")
    if raw is None:
        return None
    try:
        messages = _RAW_MESSAGES.decode(raw)
        first: Any = msgspec.json.decode(messages[0]) if messages else None
    except (ValueError, RecursionError):
        return None
    content = first.get("content") if isinstance(first, dict) else None
    own = {"role": "system", "content": note}
    if isinstance(first, dict) and first.get("role") == "system" and isinstance(content, str):
        own = {**first, "content": f"{content}\n\n{note}"}
        messages = messages[1:]
    return {"messages": msgspec.json.encode([own, *messages])}


def _in_text(body: JsonObject, field: str, note: str) -> dict[str, bytes | None] | None:
    content = body.decoded(field)
    value: object = note
    if isinstance(content, str) and content:
        value = f"{content}\n\n{note}"
    elif isinstance(content, list):
        value = [*content, {"type": "text", "text": note}]
    elif content is not None and content != "":
        return None
    return {field: msgspec.json.encode(value)}
