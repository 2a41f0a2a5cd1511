"""A conversation as Mistral's messages.

Mistral requires ids of tool calls of nine letters and digits and refuses all others.
"""

from __future__ import annotations

import hashlib
import string
from typing import Any

from headrace.protocol.dialects.mistral.names import DIALECT, SIGNER
from headrace.protocol.dialects.mistral.reply.citations import write_text
from headrace.protocol.dialects.unsupported_parts import note_unsupported
from headrace.protocol.dialects.write_media import address, document_text, is_text, refused
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

_LENGTH = 9
_DIGITS = string.digits + string.ascii_letters


def provider_id(id: str) -> str:
    """Mistral's own ids as they are; for others one that depends on nothing but the id.

    So a call and its result have the same in every request. Of a thousand calls in a conversation
    two collide once in 10^10 conversations.
    """
    if len(id) == _LENGTH and id.isascii() and id.isalnum():
        return id
    number = int.from_bytes(hashlib.sha256(id.encode(errors="replace")).digest()[:16])
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)


_SYSTEM = ("system", "developer")


class MessageWriter:
    """A writer of all messages of a call. dropped: contents that Mistral's API cannot express."""

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._own = call.dialect == DIALECT
        self.dropped: dict[str, None] = {}

    def all(self) -> list[dict[str, Any]]:
        """The messages in the order that Mistral requires.

        A user's turn cannot follow a tool's, so the assistant says "OK." between them. The last
        turn can be the assistant's only as a `prefix` that the answer goes on from: it is called
        that unless the client says otherwise.
        """
        told: list[dict[str, Any]] = []
        if self._call.instructions:
            content = self._content(self._call.instructions, "instructions")
            told.append({"role": "system", "content": content})
        for number, message in enumerate(self._call.messages):
            for following in self._messages(message, f"messages[{number}]"):
                if told and told[-1]["role"] == "tool" and following["role"] == "user":
                    told.append({"role": "assistant", "content": "OK."})
                told.append(following)
        if told and told[-1]["role"] == "assistant" and "tool_calls" not in told[-1]:
            told[-1].setdefault("prefix", True)
        return told

    def _messages(self, message: Message, path: str) -> list[dict[str, Any]]:
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
            if self._own or (role == "assistant" and name == "prefix" and isinstance(value, bool))
        }
        self.dropped |= {f"messages.extra.{name}": None for name in extra if name not in kept}
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        written = [self._result(result, path) for result in results]
        others = tuple(other for other in message.parts if not isinstance(other, ToolResult))
        if role == "assistant":
            written.append(self._assistant(others, path) | kept)
        elif others or not results:
            role = "user" if role == "tool" else role
            written.append({"role": role, "content": self._content(others, path)} | kept)
        return written

    def _assistant(self, parts: tuple[Part, ...], path: str) -> dict[str, Any]:
        calls = [
            {
                "id": provider_id(part.id),
                "type": "function",
                "function": {"name": part.name, "arguments": part.arguments.strip() or "{}"},
                "index": index,
            }
            for index, part in enumerate(call for call in parts if isinstance(call, ToolCall))
        ]
        told: dict[str, Any] = {
            "role": "assistant",
            "content": self._content(parts, path, "assistant"),
        }
        return told | {"tool_calls": calls} if calls else told

    def _result(self, part: ToolResult, path: str) -> dict[str, Any]:
        note_unsupported(part, self.dropped)
        if part.is_error:
            self.dropped["messages.is_error"] = None
        told: dict[str, Any] = {"role": "tool", "tool_call_id": provider_id(part.call_id)}
        if part.name:
            told["name"] = part.name
        return told | {"content": self._content(part.content, path)}

    def _content(
        self, parts: tuple[Part, ...], path: str, role: Role = "user"
    ) -> str | list[dict[str, Any]]:
        """Texts alone as such where they are one, anything else as chunks. No tool calls."""
        chunks: list[dict[str, Any]] = []
        for part in parts:
            note_unsupported(part, self.dropped)
            if isinstance(part, Text):
                chunks += write_text(part)
            elif isinstance(part, Refusal):
                chunks.append({"type": "text", "text": part.text})
            elif isinstance(part, Thinking):
                chunks += _thoughts(part)
            elif isinstance(part, Media):
                chunks.append(_media(part, path))
            elif isinstance(part, Opaque):
                if part.dialect == DIALECT:
                    chunks.append(part.value)
                else:
                    self.dropped[opaque_loss(part, role)] = None
        if not chunks:
            return ""
        words = chunks[0].get("text")
        if len(chunks) == 1 and chunks[0].get("type") == "text" and isinstance(words, str):
            return words
        return chunks


def _thoughts(part: Thinking) -> list[dict[str, Any]]:
    """Unsigned thoughts are sent; those that another vendor signed mean nothing here."""
    signature = part.signature
    if signature is not None and signature.origin != SIGNER:
        return []
    if not part.text and signature is None:
        return []
    texts = [{"type": "text", "text": part.text}] if part.text else []
    chunk: dict[str, Any] = {"type": "thinking", "thinking": texts}
    return [chunk if signature is None else chunk | {"signature": signature.value}]


def _media(part: Media, path: str) -> dict[str, Any]:
    if part.kind == "video":
        raise refused(part, path, "Mistral does not accept video")
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    if part.kind == "audio":
        # Either an address or base64, both as they are.
        return {"type": "input_audio", "input_audio": part.url or part.data or ""}
    if part.kind == "image":
        told = {"url": address(part, path, "Mistral")}
        if part.detail is not None:
            told["detail"] = part.detail
        return {"type": "image_url", "image_url": told}
    if part.data is not None and is_text(part):
        # Mistral opens PDF and the like; a text it reads as text.
        words = document_text(part, path, "Mistral")
        return {"type": "text", "text": f"{part.name}:\n{words}" if part.name else words}
    document = {"type": "document_url", "document_url": address(part, path, "Mistral")}
    return document | ({"document_name": part.name} if part.name else {})
