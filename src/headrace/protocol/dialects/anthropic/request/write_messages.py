"""The turns of a conversation in the form that the API requires, and their parts as blocks.

Adjacent turns of one role become one message. A call that came in another dialect is mended where
the API would refuse it: the first message is a user's (PLACEHOLDER if there is none), results of
tools come before what else a turn says, a turn of nothing but white space is PLACEHOLDER if it is
the user's and left out if it is the model's, and a last turn of the model's ends in no white space.

A system message between turns is written as one where the model takes it, behind the user's turn it
stands in, as the API wants it; else it goes into the user's turn between <system> tags, which is
reported as dropped, since the text no longer has a system's weight.
"""

from __future__ import annotations

import zlib
from typing import Any

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic.media import FILES_BETA, write_media
from headrace.protocol.dialects.anthropic.request.cache_marks import marked
from headrace.protocol.dialects.anthropic.request.read_blocks import BLOCK
from headrace.protocol.dialects.anthropic.values import NAME, input_of
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
        if self.own and isinstance(part.extra.get(BLOCK), dict):
            return dict(part.extra[BLOCK])
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
        for inner in part.content:
            if (written := self.block(inner, "tool", path)) is not None:
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
    kept = "".join(character if character in _ID_CHARACTERS else "_" for character in id)
    return f"{kept}_{zlib.crc32(id.encode()):08x}"


PLACEHOLDER = "."

_Turn = dict[str, Any]


def write_messages(
    call: ChatCall, blocks: BlockWriter, *, inline_system: bool
) -> list[dict[str, Any]]:
    """Raises RequestError if there is nothing to say."""
    turns = _Turns(blocks, inline_system=inline_system)
    for index, message in enumerate(call.messages):
        turns.add(message, f"messages[{index}]")
    turns.place_system()
    written = turns.written
    if not blocks.own:
        _mend(written)
    if not written:
        raise RequestError(
            "messages: nothing is left to send; send at least one user message with text",
            param="messages",
        )
    return written


class _Turns:
    def __init__(self, blocks: BlockWriter, *, inline_system: bool) -> None:
        self.written: list[_Turn] = []
        self._blocks = blocks
        self._inline_system = inline_system
        self._system: list[_Turn] = []

    def add(self, message: Message, path: str) -> None:
        if message.name is not None:
            self._blocks.dropped["messages.name"] = None
        content = [
            block
            for at, part in enumerate(message.parts)
            if (block := self._blocks.block(part, message.role, f"{path}.parts[{at}]")) is not None
        ]
        extra = dict(message.extra)
        role = extra.pop("role", None)
        extra = self._blocks.extra(extra)
        if role in ("system", "developer"):
            self._add_system(content, extra)
            return
        if message.role == "assistant":
            self.place_system()
            if not content and (message.parts or not self._blocks.own):
                return
            self._join("assistant", content, extra)
            return
        if not content and not self._blocks.own:
            content = [{"type": "text", "text": PLACEHOLDER}]
        self._join("user", content, extra)

    def place_system(self) -> None:
        """Write the system messages that waited for the end of the user's turn."""
        waiting, self._system = self._system, []
        if self.written and self.written[-1]["role"] == "user":
            self.written += waiting
            return
        for turn in waiting:
            self._as_user(turn["content"])

    def _add_system(self, content: list[dict[str, Any]], extra: dict[str, Any]) -> None:
        if not content:
            return
        if self._inline_system:
            self._system.append({"role": "system", "content": content, **extra})
        else:
            self._as_user(content)

    def _as_user(self, content: list[dict[str, Any]]) -> None:
        self._blocks.dropped["messages.system"] = None
        for block in content:
            if block["type"] == "text":
                block["text"] = f"<system>{block['text']}</system>"
        self._join("user", [inner for inner in content if inner["type"] == "text"], {})

    def _join(self, role: str, content: list[dict[str, Any]], extra: dict[str, Any]) -> None:
        if self.written and not extra:
            last = self.written[-1]
            if last["role"] == role and len(last) == 2:
                last["content"] += content
                return
        self.written.append({"role": role, "content": content, **extra})


def _mend(turns: list[_Turn]) -> None:
    if turns and turns[0]["role"] != "user":
        first = {"role": "user", "content": [{"type": "text", "text": PLACEHOLDER}]}
        turns.insert(0, first)
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if turns and turns[-1]["role"] == "assistant":
        last = turns[-1]["content"][-1]
        if last["type"] == "text":
            last["text"] = last["text"].rstrip()
