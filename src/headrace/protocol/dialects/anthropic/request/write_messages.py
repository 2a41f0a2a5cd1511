"""The turns of a conversation in the form that the API requires.

Adjacent turns of one role become one message. A call that came in another dialect is mended where
the API would refuse it: the first message is a user's (PLACEHOLDER if there is none), results of
tools come before what else a turn says, a turn of nothing but white space is PLACEHOLDER if it is
the user's and left out if it is the model's, and a last turn of the model's ends in no white space.

A system message between turns is written as one where the model takes it, behind the user's turn it
stands in, as the API wants it; else it goes into the user's turn between <system> tags, which is
told as dropped, since the text no longer has a system's weight.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic.request.write_blocks import BlockWriter
from headrace.protocol.neutral.call import ChatCall, Message

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
        self._join("user", [one for one in content if one["type"] == "text"], {})

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
