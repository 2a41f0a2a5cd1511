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


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class SavedChat(msgspec.Struct, frozen=True, kw_only=True):
    """The file that /save writes."""

    messages: list[Message]
    model: str = ""
    settings: dict[str, Any] = {}
    """Sampling parameters that differ from the defaults, by name."""
    stop: list[str] = []
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

    def with_question(self, text: str) -> list[Message]:
        """The messages and one more of the user's, which is not kept yet."""
        return [*self.messages, Message("user", text)]

    def keep(self, question: str, answer: str) -> None:
        """Add an exchange."""
        self.messages = [*self.with_question(question), Message("assistant", answer)]

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


def plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    """As a chat template takes them."""
    return [{"role": one.role, "content": one.content} for one in messages]


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
    return chat


def markdown(chat: SavedChat) -> str:
    """A conversation for people to read; it cannot be loaded again."""
    parts = [f"# Conversation with {chat.model or 'a model'}"]
    if chat.settings:
        parts.append(", ".join(f"{name} {value}" for name, value in chat.settings.items()))
    for one in chat.messages:
        parts += [f"## {one.role.capitalize()}", _below_headings(one.content)]
    return "\n\n".join(parts) + "\n"


def _below_headings(text: str) -> str:
    """Headings of a message two levels lower, so that the messages stay the outline."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        heading = not fenced and re.match(r"#{1,4} ", line)
        lines.append(f"##{line}" if heading else line)
    return "\n".join(lines)
