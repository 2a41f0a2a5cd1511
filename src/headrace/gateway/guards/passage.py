"""The texts of a request or an answer: where each stands, and who says it.

A text is every string but names, ids, addresses and media: so what nobody here knows, or a dialect
adds later, is looked at too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headrace.protocol.json_spans import Path

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["text", "arguments", "argument", "thinking", "refusal"]
"""arguments: of a tool call, as JSON text; argument: one text among those that are told apart."""


# Half of a character, as texts that were cut have it: UTF-8 has no bytes for it.
_SURROGATE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Of the same length, and such that it can be sent."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class Passage(NamedTuple):
    """choice: of an answer, which of several."""

    path: Path
    role: Role
    kind: Kind
    text: str
    choice: int = 0


_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
EMBEDDINGS = "embeddings"
"""In place of a dialect: what is asked for embeddings is in `input` in all of them."""

# What each dialect has texts under, and whose they are where nothing else says it.
_REQUEST_ROOTS: Mapping[str, tuple[tuple[str, Role], ...]] = {
    "openai-chat": (("messages", "user"), ("prediction", "assistant")),
    "openai-completions": (("prompt", "user"), ("suffix", "user")),
    EMBEDDINGS: (("input", "user"), ("prompt", "user")),
    "openai-responses": (("instructions", "system"), ("input", "user"), ("prompt", "user")),
    "anthropic": (("system", "system"), ("messages", "user")),
    "ollama": (("system", "system"), ("messages", "user"), ("prompt", "user")),
    "ollama-generate": (("system", "system"), ("prompt", "user"), ("suffix", "user")),
}
_REPLY_ROOTS: Mapping[str, tuple[str, ...]] = {
    "openai-chat": ("choices",),
    "openai-completions": ("choices",),
    "openai-responses": ("output",),
    "anthropic": ("content",),
    "ollama": ("message", "response"),
    "ollama-generate": ("thinking", "response"),
}
_NO_TEXT = frozenset(
    (
        "type", "role", "id", "object", "model", "name", "status", "phase", "index",
        "tool_call_id", "tool_use_id", "call_id", "item_id", "file_id", "container_id",
        "image_url", "url", "file_url", "video_url", "images", "file_data", "media_type",
        "mime_type", "format", "detail", "cache_control", "signature", "encrypted_content",
        "encrypted_index", "thought_signature", "logprobs", "finish_reason", "stop_reason",
        "native_finish_reason", "tool_name", "server_name", "version", "content_filter_results",
        "content_filter_offsets",
    )
)  # fmt: skip
_THINKING = frozenset(("thinking", "reasoning", "reasoning_content", "reasoning_details"))
_ARGUMENTS = frozenset(("arguments", "partial_json"))
# Objects of these types hold in `input` what a tool is given, under any names.
_CALL_TYPES = frozenset(("tool_use", "server_tool_use", "mcp_tool_use", "custom_tool_call"))


def request_passages(dialect: str, body: Mapping[str, Any]) -> list[Passage]:
    """Of a client's body, decoded."""
    found: list[Passage] = []
    for name, role in _REQUEST_ROOTS.get(dialect, ()):
        found += texts_of(body.get(name), (name,), role)
    return found


def reply_passages(dialect: str, body: Mapping[str, Any]) -> list[Passage]:
    """Of a whole answer in a client's dialect, decoded."""
    found: list[Passage] = []
    for name in _REPLY_ROOTS.get(dialect, ()):
        value = body.get(name)
        if name == "choices" and isinstance(value, list):
            for at, choice in enumerate(value):
                index = choice.get("index", at) if isinstance(choice, dict) else at
                for one in texts_of(choice, (name, at), "assistant"):
                    found.append(one._replace(choice=index if isinstance(index, int) else at))
        else:
            found += texts_of(value, (name,), "assistant")
    return found


def texts_of(value: Any, path: Path, role: Role, kind: Kind = "text") -> Iterator[Passage]:
    """What is said in a value, inwards."""
    if isinstance(value, str):
        if value and not value.startswith("data:"):
            yield Passage(path, role, kind, readable(value))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from texts_of(one, (*path, at), role, kind)
    elif isinstance(value, dict):
        yield from _of_object(value, path, role, kind)


def _of_object(value: dict[str, Any], path: Path, role: Role, kind: Kind) -> Iterator[Passage]:
    given = value.get("role")
    typed = value.get("type")
    if isinstance(given, str):
        role = _ROLES.get(given, role)
    if isinstance(typed, str):
        if typed.endswith(("_result", "_output")):
            role = "tool"
        elif typed in _CALL_TYPES or typed in ("function_call", "reasoning"):
            role = "assistant"
        kind = "thinking" if typed == "reasoning" else kind
    for name, inner in value.items():
        if name in _NO_TEXT or (name == "data" and typed != "text"):
            continue
        if (name == "input" and typed in _CALL_TYPES) or (
            name == "arguments" and not isinstance(inner, str)
        ):
            yield from _of_arguments(inner, (*path, name), role)
            continue
        yield from texts_of(inner, (*path, name), role, kind_of(name, kind))


def kind_of(name: str, around: Kind) -> Kind:
    """What a field's name says of its text."""
    if name in _THINKING:
        return "thinking"
    if name in _ARGUMENTS:
        return "arguments"
    return "refusal" if name == "refusal" else around


def _of_arguments(value: Any, path: Path, role: Role) -> Iterator[Passage]:
    """All strings: any name in it is the tool's own."""
    if isinstance(value, str):
        if value:
            yield Passage(path, role, "argument", readable(value))
    elif isinstance(value, list | dict):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            yield from _of_arguments(one, (*path, key), role)
