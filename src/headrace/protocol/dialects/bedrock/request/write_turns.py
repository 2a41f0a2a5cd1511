"""The conversation as Converse wants it: turns of user and assistant by turns, the user first.

Adjacent turns of one role become one; results of tools are the user's and come first in its turn.
Where the API wants a turn or a text that the caller did not give, "." stands for it: before an
assistant's first turn, in a conversation without any, beside a document, and between results and
what a model does not take beside them. Media that a model does not take in a result follow it; "."
is left in one that held nothing else. A line end stands between a document and its cache point.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, NamedTuple

import msgspec

from headrace.protocol.dialects.bedrock.request.family import ANY, Family
from headrace.protocol.dialects.bedrock.request.write_media import DOCUMENT_FIELDS, MediaWriter
from headrace.protocol.dialects.bedrock.request.write_tools import cache_point
from headrace.protocol.dialects.bedrock.values import DIALECT, SIGNER
from headrace.protocol.neutral.call import Message, Role
from headrace.protocol.neutral.losses import opaque_loss
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_TOOL_USE_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_FILLER = {"text": "."}

# AWS refuses a cache point right after these, and takes one after such a text.
_UNMARKED = ("document", "video")
_SEPARATOR = {"text": "\n"}

Block = dict[str, Any]


class _Turn(NamedTuple):
    role: str
    blocks: list[Block]


def write_turns(
    messages: tuple[Message, ...], family: Family, dropped: list[str]
) -> list[dict[str, Any]]:
    """`messages` of a request; what cannot be said is appended to `dropped`.

    Raises RequestError for media that cannot be given to Bedrock.
    """
    writer = _TurnWriter(family, dropped)
    turns: list[_Turn] = []
    for number, message in enumerate(messages):
        role = "assistant" if message.role == "assistant" else "user"
        blocks = writer.blocks(message, f"messages[{number}]")
        if not blocks:
            continue
        if turns and turns[-1].role == role:
            turns[-1].blocks.extend(blocks)
        else:
            turns.append(_Turn(role, blocks))
    turns = [arranged for turn in turns for arranged in _arranged(turn, family)]
    if not turns or (turns[0].role == "assistant" and not family.starts_with_assistant):
        turns.insert(0, _Turn("user", [_FILLER]))
    return [{"role": turn.role, "content": turn.blocks} for turn in turns]


def _arranged(turn: _Turn, family: Family) -> list[_Turn]:
    """A user's turn with results first, in three where the rest may not stand beside them."""
    if turn.role == "assistant":
        return [turn]
    results: list[Block] = []
    rest: list[Block] = []
    into = rest
    for block in turn.blocks:
        if "toolResult" in block:
            into = results
        elif "cachePoint" not in block:
            into = rest
        into.append(block)
    said = any(block.get("text", "").strip() for block in rest)
    if not said and any("document" in block for block in rest):
        rest.insert(0, _FILLER)
    if not results or not rest or all(_beside(block, family) for block in rest):
        return [_Turn("user", results + rest)]
    return [_Turn("user", results), _Turn("assistant", [_FILLER]), _Turn("user", rest)]


def _beside(block: Block, family: Family) -> bool:
    kind = next(iter(block), "")
    return kind in family.beside_results or kind not in ANY


class _TurnWriter:
    """A writer of the parts of one request."""

    def __init__(self, family: Family, dropped: list[str]) -> None:
        self._family = family
        self._dropped = dropped
        self._media = MediaWriter()

    def blocks(self, message: Message, at: str) -> list[Block]:
        """The content of one message; [] if nothing of it can be said."""
        if message.name is not None:
            self._dropped.append(f"{at}.name")
        # A system message between turns: models take those of the user in its place.
        self._dropped += [f"{at}.extra.{name}" for name in message.extra if name != "role"]
        blocks: list[Block] = []
        moved: list[Block] = []
        for number, part in enumerate(message.parts):
            here = f"{at}.parts[{number}]"
            block = self._block(part, message.role, here, moved)
            if block is not None:
                blocks.append(block)
            mark = None if isinstance(part, Refusal | Thinking | Opaque) else part.cache
            if mark is not None:
                self._mark(blocks, mark, here)
        return blocks + moved

    def _mark(self, blocks: list[Block], mark: CacheMark, at: str) -> None:
        if not blocks or not self._family.cache_points:
            self._dropped.append(f"{at}.cache")
        elif "cachePoint" not in blocks[-1]:
            if any(kind in blocks[-1] for kind in _UNMARKED):
                blocks.append(_SEPARATOR)
            blocks.append(cache_point(mark))

    def _block(self, part: Part, role: Role, at: str, moved: list[Block]) -> Block | None:
        if isinstance(part, Text | ToolCall):
            self._dropped += [f"{at}.extra.{name}" for name in part.extra]
        if isinstance(part, Text):
            # The API refuses blank text, and nothing is lost without it.
            return {"text": part.text} if part.text.strip() else None
        if isinstance(part, Refusal):
            return {"text": part.text} if part.text.strip() else None
        if isinstance(part, Media):
            return self._write_media(part, at)
        if isinstance(part, Thinking):
            return self._thinking(part)
        if isinstance(part, ToolCall):
            return self._tool_use(part, at)
        if isinstance(part, ToolResult):
            return self._tool_result(part, at, moved)
        if part.dialect == DIALECT:
            return part.value
        self._dropped.append(opaque_loss(part, role))
        return None

    def _write_media(self, media: Media, at: str) -> Block:
        if media.detail not in (None, "auto"):
            self._dropped.append(f"{at}.detail")
        known = DOCUMENT_FIELDS if media.kind == "document" else ()
        self._dropped += [f"{at}.extra.{name}" for name in media.extra if name not in known]
        return self._media.write(media, at)

    def _thinking(self, part: Thinking) -> Block | None:
        """A thought that Anthropic signed, for its models only; others refuse it."""
        signature = part.signature
        if signature is None or signature.origin != SIGNER:
            return None
        if self._family.vendor not in ("anthropic", ""):
            return None
        if part.redacted:
            hidden = base64.b64encode(signature.value.encode()).decode()
            return {"reasoningContent": {"redactedContent": hidden}}
        told = {"text": part.text, "signature": signature.value}
        return {"reasoningContent": {"reasoningText": told}}

    def _tool_use(self, call: ToolCall, at: str) -> Block:
        use = {"toolUseId": tool_use_id(call.id), "name": call.name}
        return {"toolUse": {**use, "input": self._arguments(call.arguments, at)}}

    def _arguments(self, text: str, at: str) -> dict[str, Any]:
        """The arguments as an object, the only form the API accepts; others are reported as
        dropped, and passed as text."""
        if not text.strip():
            return {}
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        self._dropped.append(f"{at}.arguments")
        return {"arguments": text}

    def _tool_result(self, result: ToolResult, at: str, moved: list[Block]) -> Block:
        content: list[Block] = []
        for number, part in enumerate(result.content):
            if isinstance(part, Text):
                content.append({"text": part.text})
                continue
            media = self._write_media(part, f"{at}.content[{number}]")
            fits = part.kind in self._family.in_results
            (content if fits else moved).append(media)
        if moved and not content:
            content.append(_FILLER)
        block: Block = {"toolUseId": tool_use_id(result.call_id), "content": content}
        if result.is_error:
            if self._family.result_status:
                block["status"] = "error"
            else:
                self._dropped.append(f"{at}.is_error")
        return {"toolResult": block}


def tool_use_id(call_id: str) -> str:
    """An id that Bedrock accepts: `call_id`, or a digest of it.

    A call and its result get the same id, so no state is needed.
    """
    if _TOOL_USE_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:32]
