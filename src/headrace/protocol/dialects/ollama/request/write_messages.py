"""A conversation as Ollama's messages: one text each, images beside it."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama.images import write_image
from headrace.protocol.neutral.call import ChatCall, Message
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
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class MessageWriter:
    """A writer of all messages of a call. dropped: contents that Ollama's API cannot express."""

    def __init__(self, call: ChatCall) -> None:
        self._own = call.dialect == "ollama"
        self._names: dict[str, str] = {}
        self.dropped: dict[str, None] = {}

    def system(self, texts: tuple[Text, ...]) -> list[dict[str, Any]]:
        """One message for each text before the first turn."""
        for text in texts:
            self._note(text)
        return [{"role": "system", "content": text.text} for text in texts]

    def messages(self, message: Message, path: str) -> list[dict[str, Any]]:
        """Mostly one; of a tool's turn one for each result. path: for errors."""
        extra = dict(message.extra)
        role: str = message.role
        if role == "user" and extra.get("role") in _SYSTEM:
            del extra["role"]
            role = "system"
        if message.name is not None:
            self.dropped["messages.name"] = None
        if not self._own:
            self.dropped |= {f"messages.extra.{name}": None for name in extra}
            extra = {}
        for part in message.parts:
            self._note(part)
        results = [result for result in message.parts if isinstance(result, ToolResult)]
        written = [self._result(result, path) | extra for result in results]
        others = tuple(other for other in message.parts if not isinstance(other, ToolResult))
        if others or not results:
            written.append(self._turn(role, others, path) | extra)
        return written

    def _turn(self, role: str, parts: tuple[Part, ...], path: str) -> dict[str, Any]:
        texts: list[str] = []
        thoughts: list[str] = []
        images: list[str] = []
        calls: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, Text | Refusal):
                texts.append(part.text)
            elif isinstance(part, Thinking):
                # Signed thoughts are another vendor's and mean nothing to this model.
                if part.signature is None and not part.redacted:
                    thoughts.append(part.text)
            elif isinstance(part, Media):
                images.append(write_image(part, path))
            elif isinstance(part, ToolCall):
                calls.append(self._call(part, len(calls), path))
            elif isinstance(part, Opaque):
                self.dropped[opaque_loss(part, "assistant" if role == "assistant" else "user")] = (
                    None
                )
        # A model's pieces of text are one text; a user's are paragraphs, as Ollama itself joins
        # messages of one role.
        written: dict[str, Any] = {
            "role": role,
            "content": ("" if role == "assistant" else "\n\n").join(texts),
        }
        if thoughts:
            written["thinking"] = "".join(thoughts)
        if images:
            written["images"] = images
        if calls:
            written["tool_calls"] = calls
        return written

    def _call(self, part: ToolCall, number: int, path: str) -> dict[str, Any]:
        self._names[part.id] = part.name
        arguments = arguments_object(part.arguments)
        if arguments is None:
            raise RequestError(
                f"{path}: the arguments of the call of {part.name!r} are not a JSON object, "
                "which Ollama requires; correct them or choose another provider",
                param=path,
            )
        function = {"index": number, "name": part.name, "arguments": arguments}
        return {"id": part.id, "function": function}

    def _result(self, part: ToolResult, path: str) -> dict[str, Any]:
        if part.is_error:
            self.dropped["messages.is_error"] = None
        texts = [inner.text for inner in part.content if isinstance(inner, Text)]
        images = [write_image(inner, path) for inner in part.content if isinstance(inner, Media)]
        written: dict[str, Any] = {"role": "tool", "content": "\n\n".join(texts)}
        name = part.name or self._names.get(part.call_id)
        if name:
            written["tool_name"] = name
        written["tool_call_id"] = part.call_id
        if images:
            written["images"] = images
        return written

    def _note(self, part: Part) -> None:
        if isinstance(part, Text | Media | ToolCall | ToolResult) and part.cache is not None:
            self.dropped["cache"] = None
        if isinstance(part, Media) and part.detail not in (None, "auto"):
            self.dropped["messages.detail"] = None


def arguments_object(arguments: str) -> msgspec.Raw | None:
    """A tool call's arguments as they stand, in one line; None if they are no JSON object."""
    raw = arguments.strip().encode(errors="replace") or b"{}"
    try:
        _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Line ends can stand between values alone, and would end a line of a stream.
    return msgspec.Raw(raw.replace(b"\n", b" ").replace(b"\r", b" "))
