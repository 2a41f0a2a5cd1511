"""Thoughts and their signatures as OpenRouter's `reasoning_details`, the only list that has both.

A detail is `reasoning.text` {text, signature}, `reasoning.summary` {summary} or
`reasoning.encrypted` {data}, with a `format` that says whose signature it is. Gemini's signature of
a tool call is an encrypted detail whose id is the call's. Source: openrouter.ai/docs,
"Preserving reasoning".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.values import mapping, objects, text
from headrace.protocol.neutral.part import Part, Signature, Thinking, ToolCall

_ORIGINS = {
    "anthropic-claude-v1": "anthropic",
    "google-gemini-v1": "gemini",
    "openai-responses-v1": "openai",
}
_FORMATS = {origin: form for form, origin in _ORIGINS.items()}


def origin_of(form: Any) -> str:
    """The origin of a detail's signature; an unknown format is its own origin."""
    return _ORIGINS.get(text(form), text(form) or "unknown")


def read_detail(detail: dict[str, Any]) -> Thinking | None:
    """One detail; None for an empty one."""
    kind, number = detail.get("type"), text(detail.get("id")) or None
    origin = origin_of(detail.get("format"))
    if kind == "reasoning.summary":
        summary = text(detail.get("summary"))
        return Thinking(text=summary, summary=True, id=number) if summary else None
    if kind == "reasoning.encrypted":
        data = text(detail.get("data"))
        signature = Signature(origin, data)
        return Thinking(text="", signature=signature, redacted=True, id=number) if data else None
    if kind != "reasoning.text":
        return None
    thought, signed = text(detail.get("text")), text(detail.get("signature"))
    if not thought and not signed:
        return None
    return Thinking(
        text=thought, signature=Signature(origin, signed) if signed else None, id=number
    )


def read_details(value: Any) -> list[Thinking]:
    """All details of a message. Pieces that a client kept as they streamed become one again."""
    found: list[Thinking] = []
    last: tuple[Any, ...] | None = None
    for detail in objects(value):
        one = read_detail(detail)
        if one is None:
            continue
        key = (detail.get("type"), detail.get("index"))
        before = found[-1] if found else None
        if (
            before is not None
            and key == last
            and detail.get("index") is not None
            and not one.redacted
            and before.signature is None
        ):
            found[-1] = msgspec.structs.replace(
                before, text=before.text + one.text, signature=one.signature
            )
        else:
            found.append(one)
        last = key
    return found


def write_details(
    parts: Iterable[Part], *, signatures_of_calls: bool = False
) -> list[dict[str, Any]]:
    """The details that `parts` are, numbered in their order.

    signatures_of_calls: Gemini's signatures of tool calls too, as OpenRouter wants them.
    """
    details: list[dict[str, Any]] = []
    for part in parts:
        detail: dict[str, Any] | None = None
        if isinstance(part, Thinking) and (part.text or part.signature is not None):
            detail = write_detail(part)
        elif isinstance(part, ToolCall) and signatures_of_calls and part.signature is not None:
            hidden = Thinking(text="", signature=part.signature, redacted=True, id=part.id)
            detail = write_detail(hidden)
        if detail is not None:
            _append(details, detail)
    return details


def _append(details: list[dict[str, Any]], detail: dict[str, Any]) -> None:
    """A summary and the hidden thoughts it is of are one item: one index, one format."""
    before = details[-1] if details else {}
    detail["index"] = before.get("index", -1) + 1
    summed = before.get("type") == "reasoning.summary" and "format" not in before
    if summed and detail["type"] == "reasoning.encrypted":
        detail["index"] = before["index"]
        before["format"] = detail["format"]
    details.append(detail)


def write_detail(thought: Thinking, index: int = 0) -> dict[str, Any]:
    """One detail."""
    detail: dict[str, Any]
    signature = thought.signature
    if thought.redacted and signature is not None:
        detail = {"type": "reasoning.encrypted", "data": signature.value}
    elif thought.summary:
        detail = {"type": "reasoning.summary", "summary": thought.text}
    else:
        detail = {"type": "reasoning.text", "text": thought.text}
        if signature is not None:
            detail["signature"] = signature.value
    if signature is not None:
        form = None if signature.origin == "unknown" else signature.origin
        detail["format"] = _FORMATS.get(signature.origin, form)
    if thought.id is not None:
        detail["id"] = thought.id
    detail["index"] = index
    return detail


def google_signature(holder: dict[str, Any]) -> Signature | None:
    """`extra_content.google.thought_signature` of a tool call or of a message."""
    google = mapping(mapping(holder.get("extra_content")).get("google"))
    value = text(google.get("thought_signature"))
    return Signature("gemini", value) if value else None


def read_call_signature(call: dict[str, Any]) -> Signature | None:
    """The signature of a tool call: Google's, or another that we wrote beside it."""
    ours = mapping(mapping(call.get("extra_content")).get("headrace"))
    if text(ours.get("origin")) and text(ours.get("value")):
        return Signature(ours["origin"], ours["value"])
    return google_signature(call)


def write_call_signature(signature: Signature) -> dict[str, Any]:
    """The `extra_content` that `read_call_signature` understands."""
    if signature.origin == "gemini":
        return {"google": {"thought_signature": signature.value}}
    return {"headrace": {"origin": signature.origin, "value": signature.value}}


def sign_calls(parts: list[Part]) -> list[Part]:
    """Hidden thoughts of Gemini that are of a tool call beside them become its signature."""
    calls = {part.id: at for at, part in enumerate(parts) if isinstance(part, ToolCall)}
    spent: set[int] = set()
    signed = list(parts)
    for at, part in enumerate(parts):
        if not isinstance(part, Thinking) or not is_call_signature(part) or part.id not in calls:
            continue
        call = signed[calls[part.id]]
        if isinstance(call, ToolCall) and call.signature is None:
            signed[calls[part.id]] = msgspec.structs.replace(call, signature=part.signature)
            spent.add(at)
    return [part for at, part in enumerate(signed) if at not in spent]


def is_call_signature(thought: Thinking) -> bool:
    """Whether it may be Gemini's signature of the tool call of the same id."""
    return (
        thought.redacted
        and bool(thought.id)
        and thought.signature is not None
        and thought.signature.origin == "gemini"
    )
