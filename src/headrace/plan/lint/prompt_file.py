"""Requests in a JSONL file: what they say, piece by piece with its place, and what they ask for.

A line has `messages`, `prompt` (a text) or `body`, one of OpenAI's batches with these in it; and
may have tools, max_tokens and `timestamp` in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import ConfigError, shown

_LIMITS = ("max_tokens", "max_completion_tokens", "output_tokens")
MAX_PROMPTS = 2000
"""More are not looked at; a note says so. What is wrong with prompts is wrong with most of them."""


@dataclass(frozen=True)
class Piece:
    """A part of a prompt in the order in which templates put it. place: "messages[0].content"."""

    place: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One request. pieces: tools first, as most templates have them. chat: it has messages."""

    where: str
    pieces: tuple[Piece, ...]
    chat: bool
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    at_s: float | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        """All pieces; between them nothing, as what templates put there is the same for all."""
        return "".join(one.text for one in self.pieces)

    def place_of(self, offset: int) -> str:
        """The piece, and the character in it, that `offset` of `text` is in."""
        for one in self.pieces:
            if offset < len(one.text):
                return f"{one.place}, character {offset}"
            offset -= len(one.text)
        return "the end"


@dataclass(frozen=True)
class Prompts:
    """A file of them. total: lines of it, of which `prompts` are the first."""

    where: str
    prompts: tuple[Prompt, ...]
    total: int


def read_prompts(path: Path) -> Prompts:
    """Raises ConfigError naming the line."""
    found: list[Prompt] = []
    total = 0
    for number, line in _lines(path):
        total += 1
        if len(found) < MAX_PROMPTS:
            found.append(_prompt(line, f"{path}:{number}"))
    if not found:
        raise ConfigError(f"{path}: has no prompts; write one JSON object in each line")
    return Prompts(str(path), tuple(found), total)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                try:
                    yield number, msgspec.json.decode(text, type=dict[str, Any])
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    raise ConfigError(
                        f"{path}:{number}: is not a JSON object ({error}); write one in each line"
                    ) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; name a file to read") from error


def _prompt(line: Mapping[str, Any], where: str) -> Prompt:
    body = line.get("body")
    told = body if isinstance(body, dict) else line
    messages, text = told.get("messages"), told.get("prompt")
    tools = told.get("tools") or ()
    if not isinstance(tools, list | tuple):
        raise ConfigError(f"{where}: tools {shown(tools)}: must be a list")
    written = tuple(json.dumps(tool, ensure_ascii=False) for tool in tools)
    pieces = [Piece(f"tools[{at}]", tool) for at, tool in enumerate(written)]
    if isinstance(messages, list) and messages:
        for at, message in enumerate(messages):
            if not isinstance(message, dict) or "role" not in message:
                raise ConfigError(f"{where}: messages[{at}] must be an object with a role")
            pieces += _of_message(message, f"messages[{at}]")
    elif isinstance(text, str):
        pieces.append(Piece("prompt", text))
    else:
        raise ConfigError(f"{where}: has neither messages nor prompt as a text; give one of them")
    limit = next((told[name] for name in _LIMITS if isinstance(told.get(name), int)), None)
    moment = line.get("timestamp")
    return Prompt(
        where=where,
        pieces=tuple(pieces),
        chat=bool(messages),
        tools=written,
        max_tokens=limit,
        at_s=moment / 1000 if isinstance(moment, int | float) else None,
        model=told["model"] if isinstance(told.get("model"), str) else None,
    )


def _of_message(message: Mapping[str, Any], place: str) -> Iterator[Piece]:
    content = message.get("content")
    # The role is part of what must be equal; templates write it before the content.
    yield Piece(f"{place}.role", f"{message['role']}\n")
    if isinstance(content, str):
        yield Piece(f"{place}.content", content)
    elif isinstance(content, list):
        for at, part in enumerate(content):
            text = part.get("text") if isinstance(part, dict) else None
            yield Piece(f"{place}.content[{at}]", text if isinstance(text, str) else str(part))
    if message.get("tool_calls"):
        yield Piece(f"{place}.tool_calls", json.dumps(message["tool_calls"], ensure_ascii=False))
