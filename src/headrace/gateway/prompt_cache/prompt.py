"""A request's prompt in the order in which providers cache it: tools, system prompt, turns.

It reads bodies of OpenAI's chat completions and responses, Anthropic's messages, Gemini and Ollama.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Kind = Literal["tool", "system", "turn"]
_SYSTEM_ROLES = ("system", "developer")
_MARKS = ("cache_control", "cachePoint", "prompt_cache_breakpoint")
# Typical of tokenizers for English and JSON.
_CHARS_PER_TOKEN = 4


class Segment(NamedTuple):
    """A part of a prompt."""

    kind: Kind
    path: str
    """Its path in the body."""
    text: str
    marked: bool = False
    """Whether it has a cache breakpoint."""

    @property
    def tokens(self) -> int:
        """Its estimated tokens."""
        return tokens_of(len(self.text))


class Prompt(NamedTuple):
    """The prompt of one request."""

    model: str
    """The requested model."""
    segments: tuple[Segment, ...]
    marks_whole: bool = False
    """Whether the request itself has a breakpoint, which the provider puts at its end."""
    has_key: bool = False
    """Whether it has a `prompt_cache_key`."""

    @property
    def fixed(self) -> tuple[Segment, ...]:
        """The part that an application sends each time: all before the first turn."""
        return tuple(segment for segment in self.segments if segment.kind != "turn")


def tokens_of(chars: int) -> int:
    """The estimated tokens of a text of so many characters."""
    return -(-chars // _CHARS_PER_TOKEN)


def prompt_of(body: Any) -> Prompt | None:
    """The prompt of a body; None if it is not a chat request."""
    if not isinstance(body, dict):
        return None
    turns_at = next((name for name in ("messages", "input", "contents") if name in body), None)
    if turns_at is None:
        return None
    model = body.get("model")
    segments = [*_tools(body), *_system(body)]
    turns: list[Segment] = []
    for segment in _turns(body[turns_at], turns_at):
        (segments if segment.kind == "system" and not turns else turns).append(segment)
    return Prompt(
        model if isinstance(model, str) else "",
        (*segments, *turns),
        any(isinstance(body.get(name), dict) for name in _MARKS),
        isinstance(body.get("prompt_cache_key"), str),
    )


def _tools(body: dict[str, Any]) -> Iterator[Segment]:
    for name in ("tools", "functions"):
        tools = body.get(name)
        for at, tool in enumerate(tools if isinstance(tools, list) else ()):
            yield Segment("tool", f"{name}[{at}]", _written(tool), _is_marked(tool))


def _system(body: dict[str, Any]) -> Iterator[Segment]:
    for name in ("system", "instructions", "systemInstruction", "system_instruction"):
        if (value := body.get(name)) is not None:
            parts = value.get("parts") if isinstance(value, dict) else value
            yield from _parts("system", name, parts)


def _turns(turns: Any, name: str) -> Iterator[Segment]:
    if isinstance(turns, str):
        yield Segment("turn", name, turns)
        return
    for at, turn in enumerate(turns if isinstance(turns, list) else ()):
        path = f"{name}[{at}]"
        if not isinstance(turn, dict):
            continue
        kind: Kind = "system" if turn.get("role") in _SYSTEM_ROLES else "turn"
        for field in ("content", "parts"):
            if field in turn:
                each = tuple(_parts(kind, f"{path}.{field}", turn[field]))
                if each and _is_marked(turn):
                    each = (*each[:-1], each[-1]._replace(marked=True))
                yield from each
        rest = {
            key: inner for key, inner in turn.items() if key not in ("content", "parts", *_MARKS)
        }
        if set(rest) - {"role", "type", "id"}:  # calls of tools, names
            yield Segment(kind, path, _written(rest))


def _parts(kind: Kind, path: str, content: Any) -> Iterator[Segment]:
    if isinstance(content, str):
        yield Segment(kind, path, content)
        return
    for at, part in enumerate(content if isinstance(content, list) else ()):
        text = part.get("text") if isinstance(part, dict) else part
        written = text if isinstance(text, str) else _written(part)
        yield Segment(kind, f"{path}[{at}]", written, _is_marked(part))


def _is_marked(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    inner = value.get("function")
    return any(value.get(name) is not None for name in _MARKS) or _is_marked(inner)


def _written(value: Any) -> str:
    """As JSON in the order of the body, as a provider is sent it; without breakpoints."""
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key not in _MARKS}
    return json.dumps(value, ensure_ascii=False)
