"""Parts of a conversation as blocks of a request."""

from __future__ import annotations

import zlib
from typing import Any

from headrace.protocol.dialects.anthropic.arguments import input_of
from headrace.protocol.dialects.anthropic.media import FILES_BETA, write_media
from headrace.protocol.dialects.anthropic.names import NAME
from headrace.protocol.dialects.anthropic.request.cache_marks import marked
from headrace.protocol.dialects.anthropic.request.read_blocks import BLOCK
from headrace.protocol.neutral.call import Role
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

_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class BlockWriter:
    """A writer of the blocks of one request.

    own: the call came in this dialect. dropped: names of what the dialect cannot express, in order.
    betas: the values of anthropic-beta that the blocks need.
    """

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self.dropped: dict[str, None] = {}
        self.betas: dict[str, None] = {}

    def block(self, part: Part, role: Role, path: str) -> dict[str, Any] | None:
        """The block of a part; None for one that is omitted. Raises RequestError for one that
        cannot be omitted."""
        if isinstance(part, Text):
            return self.text(part)
        if isinstance(part, ToolCall):
            return self._tool_use(part)
        if isinstance(part, ToolResult):
            return self._tool_result(part, path)
        if isinstance(part, Thinking):
            return _thinking(part)
        if isinstance(part, Media):
            return self._media(part, role, path)
        if isinstance(part, Refusal):
            return self.text(Text(text=part.text))
        return self._opaque(part, role)

    def text(self, part: Text) -> dict[str, Any] | None:
        """The block of a text; None for white space alone, which the API refuses; calls of this
        dialect are left unchanged."""
        if not self.own and (not part.text or part.text.isspace()):
            return None
        block: dict[str, Any] = {"type": "text", "text": part.text}
        return marked(block | self.extra(part.extra), part.cache)

    def extra(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields without a neutral form, if they are this dialect's; others are reported as
        dropped."""
        if self.own:
            return fields
        self.dropped.update({f"messages.extra.{name}": None for name in fields})
        return {}

    def _tool_use(self, part: ToolCall) -> dict[str, Any]:
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": _clean(part.id),
            "name": part.name,
            "input": input_of(part.arguments),
        }
        return marked(block | self.extra(part.extra), part.cache)

    def _tool_result(self, part: ToolResult, path: str) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _clean(part.call_id)}
        content = []
        for one in part.content:
            if self.own and isinstance(one, Text) and isinstance(one.extra.get(BLOCK), dict):
                content.append(dict(one.extra[BLOCK]))
            elif (written := self.block(one, "tool", path)) is not None:
                content.append(written)
        if content:
            block["content"] = content
        if part.is_error:
            block["is_error"] = True
        return marked(block, part.cache)

    def _media(self, part: Media, role: Role, path: str) -> dict[str, Any] | None:
        if role == "assistant" and not self.own:
            # The API takes no pictures of the model's own making back.
            self.dropped[f"messages.{part.kind}"] = None
            return None
        if part.detail not in (None, "auto"):
            self.dropped["messages.detail"] = None
        if part.file_id is not None:
            self.betas[FILES_BETA] = None
        block = write_media(part, path, own=self.own)
        return block | self.extra(part.extra)

    def _opaque(self, part: Opaque, role: Role) -> dict[str, Any] | None:
        if part.dialect == NAME:
            return dict(part.value)
        self.dropped[opaque_loss(part, role)] = None
        return None


def _thinking(part: Thinking) -> dict[str, Any] | None:
    """The block of thoughts that this API signed; it refuses all other signatures."""
    signature = part.signature
    if signature is None or signature.origin != NAME:
        return None
    if part.redacted:
        return {"type": "redacted_thinking", "data": signature.value}
    return {"type": "thinking", "thinking": part.text, "signature": signature.value}


def _clean(id: str) -> str:
    """An id the API takes (letters, digits, "_", "-"); the same for the same, others for others."""
    if id and _ID_CHARACTERS.issuperset(id):
        return id
    kept = "".join(one if one in _ID_CHARACTERS else "_" for one in id)
    return f"{kept}_{zlib.crc32(id.encode()):08x}"
