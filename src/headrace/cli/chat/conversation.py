"""A conversation as `headrace chat` holds it: messages, and how they are kept in a file.

Knows no engine and no terminal. The system message, if there is one, is the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from headrace import __version__
from headrace.atomic_file import atomic_file
from headrace.config.text_file import read_text_file
from headrace.errors import ConfigError

MAX_FILE_BYTES = 64 << 20
"""Of a file to load: far more than any context holds."""

MARKDOWN = (".md", ".markdown")


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool that the model wrote."""

    name: str
    """The tool's name."""
    arguments: str
    """JSON text, as the model wrote it."""
    id: str


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[Call, ...] = ()
    """Of the assistant: what it calls; the results follow as messages of the role tool."""
    tool_call_id: str = ""
    """Of a tool: the call whose result `content` is."""


class SavedChat(msgspec.Struct, frozen=True, kw_only=True):
    """The file that /save writes."""

    messages: list[Message]
    model: str = ""
    settings: dict[str, Any] = {}
    """Sampling parameters that differ from the defaults, by name."""
    stop: list[str] = []
    schema: Any = None
    """The JSON schema that answers are held to; None for free text."""
    tools: list[dict[str, Any]] = []
    """What the model may call, as in OpenAI's API."""
    effort: str | None = None
    """How much the model is to reason; None leaves it to the model."""
    saved_by: str = f"headrace {__version__}"


class Conversation:
    """The messages so far. Between two answers it ends with an answer, or has no question."""

    def __init__(self, system: str | None = None) -> None:
        self.messages: list[Message] = []
        self.set_system(system or "")

    @property
    def system(self) -> str:
        """The system message, "" without one."""
        first = self.messages[:1]
        return first[0].content if first and first[0].role == "system" else ""

    def set_system(self, text: str) -> None:
        """Replace the system message; "" takes it away."""
        rest = self.messages[1:] if self.system else self.messages
        self.messages = [*([Message("system", text)] if text else []), *rest]

    def keep(self, exchange: Sequence[Message]) -> None:
        """Add an exchange: a question, calls and their results if there are any, the answer."""
        self.messages = [*self.messages, *exchange]

    def clear(self) -> None:
        """Forget all but the system message."""
        self.messages = [Message("system", self.system)] if self.system else []

    def undo(self) -> str | None:
        """Take the last question and what followed it back; the question, None without one."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index].role == "user":
                question = self.messages[index].content
                self.messages = self.messages[:index]
                return question
        return None


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As OpenAI's API and chat templates take them."""
    return [_plain(message) for message in messages]


def _plain(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def save(path: Path, chat: SavedChat) -> None:
    """Write a conversation: JSON, or Markdown for a name that ends in .md.

    The name shows the old file or the whole new one. Raises ConfigError where it cannot be written.
    """
    if path.suffix.lower() in MARKDOWN:
        content = markdown(chat).encode()
    else:
        content = msgspec.json.format(msgspec.json.encode(chat), indent=2) + b"\n"
    try:
        with atomic_file(path) as file:
            file.write(content)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"/save {path}: cannot be written: {reason}") from error


def load(path: Path) -> SavedChat:
    """Read what `save` wrote as JSON. Raises ConfigError that says what is wrong with the file."""
    text = read_text_file(path, "/load", MAX_FILE_BYTES)
    try:
        chat = msgspec.json.decode(text, type=SavedChat)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"/load {path}: not a conversation that /save wrote as JSON: {error}"
        ) from error
    if any(one.role == "system" for one in chat.messages[1:]):
        raise ConfigError(f"/load {path}: only the first message may have the role system")
    called: set[str] = set()
    for index, message in enumerate(chat.messages):
        if message.role == "tool" and message.tool_call_id not in called:
            raise ConfigError(
                f"/load {path}: messages[{index}] is the result of {message.tool_call_id!r}, which "
                "is not the id of an earlier call"
            )
        called.update(call.id for call in message.tool_calls)
    return chat


def markdown(chat: SavedChat) -> str:
    """A conversation for people to read; it cannot be loaded again."""
    parts = [f"# Conversation with {chat.model or 'a model'}"]
    if chat.settings:
        parts.append(", ".join(f"{name} {value}" for name, value in chat.settings.items()))
    for one in chat.messages:
        parts.append(f"## {one.role.capitalize()}")
        parts += [_below_headings(one.content)] if one.content or not one.tool_calls else []
        parts += [f"    {call.name}({call.arguments})" for call in one.tool_calls]
    return "\n\n".join(parts) + "\n"


def _below_headings(text: str) -> str:
    """Headings of a message two levels lower, so that the messages stay the outline."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        heading = not fenced and re.match(r"#{1,4} ", line)
        lines.append(f"##{line}" if heading else line)
    return "\n".join(lines)
