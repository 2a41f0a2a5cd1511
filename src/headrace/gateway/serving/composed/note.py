"""A note to a model put into a request's instructions, in whatever dialect that is."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from headrace.gateway.serving.incoming import Incoming
from headrace.protocol.json_object import JsonObject

_RAW_MESSAGES = msgspec.json.Decoder(list[msgspec.Raw])
# A draft that is longer than most answers may be is cut.
_MOST_DRAFT_CHARS = 60_000


def draft_note(draft: str) -> str:
    """What a slow model is told of the draft of a fast one."""
    return (
        "A smaller model drafted the answer below. It may be wrong or incomplete. Use what is "
        "right in it, correct the rest, and answer the user yourself without mentioning the "
        "draft.\n\n"
        f"<draft>\n{draft[:_MOST_DRAFT_CHARS]}\n</draft>"
    )


def with_note(incoming: Incoming, note: str) -> Incoming:
    """The request with the note; as it is in a dialect that has no place for one."""
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
    """With the first message, where that is the system's: models are trained on one of them."""
    raw = body.value("messages")
    if raw is None:
        return None
    try:
        messages = _RAW_MESSAGES.decode(raw)
        first: Any = msgspec.json.decode(messages[0]) if messages else None
    except (ValueError, RecursionError):
        return None
    said = first.get("content") if isinstance(first, dict) else None
    own = {"role": "system", "content": note}
    if isinstance(first, dict) and first.get("role") == "system" and isinstance(said, str):
        own = {**first, "content": f"{said}\n\n{note}"}
        messages = messages[1:]
    return {"messages": msgspec.json.encode([own, *messages])}


def _in_text(body: JsonObject, field: str, note: str) -> dict[str, bytes | None] | None:
    said = body.decoded(field)
    value: object = note
    if isinstance(said, str) and said:
        value = f"{said}\n\n{note}"
    elif isinstance(said, list):
        value = [*said, {"type": "text", "text": note}]
    elif said is not None and said != "":
        return None
    return {field: msgspec.json.encode(value)}
