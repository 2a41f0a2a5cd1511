"""A conversation as Cohere's messages."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.cohere.names import DIALECT
from headrace.protocol.dialects.unsupported_parts import note_unsupported
from headrace.protocol.dialects.write_media import address, document_text, refused
from headrace.protocol.neutral.call import ChatCall, Message, Role
from headrace.protocol.neutral.losses import opaque_loss
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_SYSTEM = ("system", "developer")
# Fields of an assistant's message that clients of any dialect may give back as they got them.
_OWN_FIELDS = frozenset(("citations", "tool_plan"))


class MessageWriter:
    """A writer of all messages of a call.

    dropped: contents that Cohere's API cannot express. documents: those of user turns, which Cohere
    takes beside the messages.
    """

    def __init__(self, call: ChatCall) -> None:
        self._own = call.dialect == DIALECT
        self.dropped: dict[str, None] = {}
        self.documents: list[dict[str, Any]] = []

    def system(self, texts: tuple[Text, ...]) -> list[dict[str, Any]]:
        """The system message, or none."""
        if not texts:
            return []
        return [{"role": "system", "content": self._content(texts, "instructions")}]

    def messages(self, message: Message, path: str) -> list[dict[str, Any]]:
        """Mostly one; of a tool's turn one for each result. path: for errors."""
        extra = dict(message.extra)
        role: str = message.role
        if role == "user" and extra.get("role") in _SYSTEM:
            del extra["role"]
            role = "system"
        if message.name is not None:
            self.dropped["messages.name"] = None
        kept = {
            name: value
            for name, value in extra.items()
            if self._own or (role == "assistant" and name in _OWN_FIELDS)
        }
        self.dropped |= {f"messages.extra.{name}": None for name in extra if name not in kept}
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        written = [self._result(result, path) for result in results]
        others = tuple(other for other in message.parts if not isinstance(other, ToolResult))
        if role == "assistant":
            written.append(self._assistant(others, kept))
        elif others or not results:
            role = "user" if role == "tool" else role
            written.append({"role": role, "content": self._content(others, path)} | kept)
        return written

    def _content(self, parts: tuple[Part, ...], path: str) -> str | list[dict[str, Any]]:
        """A text alone as such, anything else as blocks."""
        blocks: list[dict[str, Any]] = []
        for part in parts:
            note_unsupported(part, self.dropped)
            if isinstance(part, Text | Refusal):
                blocks.append({"type": "text", "text": part.text})
            elif isinstance(part, Media):
                if part.kind == "document":
                    self.documents.append({"data": _document(part, path)})
                else:
                    blocks.append(_image(part, path))
            elif isinstance(part, Opaque):
                self._opaque(part, "user", blocks)
        return _shortest(blocks)

    def _assistant(self, parts: tuple[Part, ...], extra: dict[str, Any]) -> dict[str, Any]:
        """Text beside tool calls is the plan that led to them, as Cohere's own answers have it."""
        blocks: list[dict[str, Any]] = []
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        for part in parts:
            note_unsupported(part, self.dropped)
            if isinstance(part, Text | Refusal):
                texts.append(part.text)
            elif isinstance(part, Thinking):
                # Cohere signs nothing: what is signed is another vendor's and no use to it.
                if part.text and part.signature is None and not part.redacted:
                    blocks.append({"type": "thinking", "thinking": part.text})
            elif isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": part.arguments.strip() or "{}"}
                calls.append({"id": part.id, "type": "function", "function": function})
            elif isinstance(part, Media):
                self.dropped[f"messages.{part.kind}"] = None
            elif isinstance(part, Opaque):
                self._opaque(part, "assistant", blocks)
        told: dict[str, Any] = {"role": "assistant"}
        joined = "".join(texts)
        if calls and joined and "tool_plan" not in extra:
            told["tool_plan"] = joined
        elif joined:
            blocks.append({"type": "text", "text": joined})
        if blocks or not calls:
            told["content"] = _shortest(blocks)
        if calls:
            told["tool_calls"] = calls
        return told | extra

    def _result(self, part: ToolResult, path: str) -> dict[str, Any]:
        note_unsupported(part, self.dropped)
        if part.is_error:
            self.dropped["messages.is_error"] = None
        blocks: list[dict[str, Any]] = []
        for inner in part.content:
            note_unsupported(inner, self.dropped)
            if isinstance(inner, Text):
                blocks.append({"type": "text", "text": inner.text})
            elif inner.kind == "document":
                blocks.append({"type": "document", "document": {"data": _document(inner, path)}})
            else:
                raise refused(
                    inner, path, "Cohere accepts only text and documents as results of tools"
                )
        return {"role": "tool", "tool_call_id": part.call_id, "content": _shortest(blocks)}

    def _opaque(self, part: Opaque, role: Role, blocks: list[dict[str, Any]]) -> None:
        if part.dialect == DIALECT:
            blocks.append(part.value)
        else:
            self.dropped[opaque_loss(part, role)] = None


def _shortest(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if not blocks:
        return ""
    if len(blocks) == 1 and blocks[0].get("type") == "text":
        words = blocks[0].get("text")
        return words if isinstance(words, str) else blocks
    return blocks


def _image(part: Media, path: str) -> dict[str, Any]:
    if part.kind != "image":
        raise refused(part, path, "Cohere accepts only images and text documents")
    told = {"url": address(part, path, "Cohere")}
    if part.detail is not None:
        told["detail"] = part.detail
    return {"type": "image_url", "image_url": told}


def _document(part: Media, path: str) -> dict[str, str]:
    """A document in Cohere's sense: fields of any names, all of which the model reads."""
    content = document_text(part, path, "Cohere")
    return {"content": content} | ({"title": part.name} if part.name else {})
