"""Recorded conversations of agents, shortened to what a model's context holds.

A turn is all that was said before one of the assistant's messages. Turns of one conversation grow
by what was said since: the assistant's recorded message, results of tools, the user's next words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

Message = dict[str, Any]


class Lengths(NamedTuple):
    """What is kept of a conversation."""

    system_characters: int
    """Of the system prompt."""
    tools: int
    """The first so many of them."""
    text_characters: int
    """Of each other text: messages, thoughts, descriptions, strings in arguments of calls."""
    turns: int
    """The first so many of them."""


class Conversation(NamedTuple):
    """A recorded conversation as OpenAI's chat API has it."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    ends: list[int]
    """Of each turn, how many messages it sends."""

    def turn(self, number: int) -> list[Message]:
        """What turn `number` sends."""
        return self.messages[: self.ends[number]]


def read_conversation(path: Path, lengths: Lengths, *, one_text: bool = False) -> Conversation:
    """Read an OpenAI chat body and shorten it.

    one_text: an assistant's message with calls keeps its thoughts and not its content, as the
    template of gpt-oss refuses both. Thoughts of one that was answered without any stay absent.
    """
    body = json.loads(path.read_text(encoding="utf-8"))
    messages = [_shortened(message, lengths, one_text) for message in body["messages"]]
    ends = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    # What was said last was answered outside of the record.
    ends.append(len(messages))
    tools = [_cut(tool, lengths.text_characters) for tool in body["tools"][: lengths.tools]]
    return Conversation(messages, tools, ends[: lengths.turns])


def agents_of(conversations: Sequence[Conversation], count: int) -> list[Conversation]:
    """So many agents, which take the conversations in turn and introduce themselves by number, so
    that no two say the same beyond system prompt and tools."""
    agents = []
    for number in range(count):
        conversation = conversations[number % len(conversations)]
        roles = [message["role"] for message in conversation.messages]
        first = roles.index("user")
        text = f"(Agent {number}) {conversation.messages[first]['content']}"
        messages = [*conversation.messages]
        messages[first] = {**conversation.messages[first], "content": text}
        agents.append(conversation._replace(messages=messages))
    return agents


def _shortened(message: Message, lengths: Lengths, one_text: bool) -> Message:
    role = message["role"]
    most = lengths.system_characters if role == "system" else lengths.text_characters
    shortened = {**message, "content": (message.get("content") or "")[:most]}
    if thoughts := message.get("reasoning_content"):
        shortened["reasoning_content"] = thoughts[:most]
    if calls := message.get("tool_calls"):
        shortened["tool_calls"] = [_shortened_call(call, most) for call in calls]
        if one_text:
            shortened["content"] = ""
    return shortened


def _shortened_call(call: dict[str, Any], most: int) -> dict[str, Any]:
    arguments = _cut(json.loads(call["function"]["arguments"]), most)
    text = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": text}}


def _cut(value: Any, most: int) -> Any:
    """A JSON value with no string longer than `most` characters."""
    if isinstance(value, str):
        return value[:most]
    if isinstance(value, list):
        return [_cut(item, most) for item in value]
    if isinstance(value, dict):
        return {key: _cut(item, most) for key, item in value.items()}
    return value
