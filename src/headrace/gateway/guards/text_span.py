"""The texts of a request or an answer, with their places and roles.

A text is every string except names, ids, addresses and media, so that unknown and future fields are
checked too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from headrace.gateway.guards.request_settings import SETTINGS
from headrace.gateway.settings.guards import Role
from headrace.protocol.json_spans import NAME, Path

Kind = Literal["text", "arguments", "argument", "name", "thinking", "refusal"]
"""arguments: those of a tool call, as JSON text; argument: a single text or number in them; name:
that of a speaker, or of a field of such arguments."""


# Half of a character, as texts that were cut have it: UTF-8 has no bytes for it.
_SURROGATE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """The text with the same length, in a form that can be encoded."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class TooMuchError(ValueError):
    """A text longer than can be checked."""


class TooDeepError(TooMuchError):
    """A text stands in too many objects and lists."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {_MOST_STEPS} levels deep; nest it less")


class TooManyError(TooMuchError):
    """A body with too many texts and numbers to check."""

    def __init__(self) -> None:
        super().__init__(
            f"it has more than {MOST_TEXTS:,} texts and numbers; send several requests"
        )


MOST_TEXTS = 2**18
"""In one value of a request or an answer. Each takes a hundred times the memory of what may be two
bytes of a body; half a million tokens, as they are at least, are more than tool calls have."""


class TextSpan(NamedTuple):
    """A text of a request or an answer, with its path."""

    path: Path
    role: Role
    kind: Kind
    text: str
    choice: int = 0
    """The index of the choice, for an answer."""


class _Passages(list[TextSpan]):
    """A list of textsof a body, at most MOST_TEXTS."""

    def append(self, one: TextSpan) -> None:
        if len(self) >= MOST_TEXTS:
            raise TooManyError
        super().append(one)


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
"""Instead of a dialect: all of them have the texts to embed in `input`."""

# What each dialect has texts under, and whose they are where nothing else says it.
_REQUEST_ROOTS: Mapping[str, tuple[tuple[str, Role], ...]] = {
    "openai-chat": (("messages", "user"), ("prediction", "assistant"), ("stop", "user")),
    "openai-completions": (("prompt", "user"), ("suffix", "user"), ("stop", "user")),
    EMBEDDINGS: (("input", "user"), ("prompt", "user")),
    "openai-responses": (("instructions", "system"), ("input", "user"), ("prompt", "user")),
    "anthropic": (("system", "system"), ("messages", "user"), ("stop_sequences", "user")),
    "ollama": (
        ("system", "system"), ("messages", "user"), ("prompt", "user"), ("options", "user"),
    ),
    "ollama-generate": (
        ("system", "system"), ("prompt", "user"), ("suffix", "user"), ("template", "system"),
        ("options", "user"),
    ),
}  # fmt: skip
# Where requests say what tools there are and what shape the answer has, in any dialect but for
# embeddings.
_DEFINITIONS = ("tools", "functions", "response_format", "output_config", "output_format")
_OWN_DEFINITIONS: Mapping[str, str] = {
    "openai-responses": "text", "ollama": "format", "ollama-generate": "format",
}  # fmt: skip
# Of other fields those that instruct the model, where an engine reads them.
_INSTRUCTING = frozenset(
    ("system", "instructions", "template", "chat_template", "chat_template_kwargs")
)
# In them: what is a name or a secret of its own, where a schema says which values there are.
_DEFINITION_NAMES = frozenset(
    (
        "type", "name", "id", "format", "$ref", "$schema", "$id", "verbosity", "syntax",
        "authorization", "headers", "server_url", "server_label", "connector_id", "container",
        "file_ids", "vector_store_ids", "cache_control", "model",
    )
)  # fmt: skip
# What schemas have under names that are the author's own: of parameters, of other schemas.
_OWN_NAMES = frozenset(
    (
        "properties", "$defs", "definitions", "patternProperties", "dependentSchemas",
        "dependentRequired", "dependencies",
    )
)  # fmt: skip
_VALUES = frozenset(("enum", "const", "default", "example", "examples", "input_examples"))
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
# Addresses and bytes of media. Those of the second are never addresses.
_MEDIA = frozenset(("image_url", "url", "file_url", "video_url", "images", "file_data", "data"))
_MEDIA_BYTES = frozenset(("images", "file_data", "data"))
_BASE64 = re.compile(r"[A-Za-z0-9+/_=\r\n-]*+")
_DATA_ADDRESS = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/_=-]*+", re.ASCII)
_THINKING = frozenset(("thinking", "reasoning", "reasoning_content", "reasoning_details"))
_ARGUMENTS = frozenset(("arguments", "partial_json"))
# Each text is told with the way to it, so small ones far inside would take a thousand times their
# own memory. Schemas of the providers have ten levels, of three steps each.
_MOST_STEPS = 128
# A longer number is not text that somebody wrote.
_MOST_WHOLE = 10**30
# Objects of these types hold in `input` what a tool is given, under any names.
_CALL_TYPES = frozenset(("tool_use", "server_tool_use", "mcp_tool_use", "custom_tool_call"))


def request_passages(dialect: str, body: Mapping[str, Any]) -> list[TextSpan]:
    """The texts of a client's decoded body. Raises TooMuchError."""
    found = _Passages()
    for name, role in _REQUEST_ROOTS.get(dialect, ()):
        found += texts_of(body.get(name), (name,), role)
    looked_at = {name for name, _ in _REQUEST_ROOTS.get(dialect, ())}
    if dialect != EMBEDDINGS:
        definitions = (*_DEFINITIONS, _OWN_DEFINITIONS.get(dialect, ""))
        for name in definitions:
            if isinstance(value := body.get(name), list | dict):
                _add_definitions(found, value, (name,))
        looked_at.update(definitions)
    for name, value in body.items():
        if name in _MEDIA:
            _add_media(found, value, (name,), "user", name in _MEDIA_BYTES)
        elif name not in looked_at and name not in SETTINGS:
            _add_words(found, value, (name,), "system" if name in _INSTRUCTING else "user")
    return found


def reply_passages(dialect: str, body: Mapping[str, Any]) -> list[TextSpan]:
    """The texts of a whole, decoded answer in a client's dialect. Raises TooMuchError."""
    found: list[TextSpan] = []
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


def texts_of(value: Any, path: Path, role: Role, kind: Kind = "text") -> list[TextSpan]:
    """The texts within a value. Raises TooMuchError."""
    found = _Passages()
    _add_texts(found, value, path, role, kind)
    return found


def _below(path: Path, step: str | int) -> Path:
    if len(path) >= _MOST_STEPS:
        raise TooDeepError
    return (*path, step)


def _add_texts(found: list[TextSpan], value: Any, path: Path, role: Role, kind: Kind) -> None:
    if isinstance(value, str):
        if value:
            found.append(TextSpan(path, role, kind, readable(value)))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            _add_texts(found, one, _below(path, at), role, kind)
    elif isinstance(value, dict):
        _add_object(found, value, path, role, kind)


def _add_object(
    found: list[TextSpan], value: dict[str, Any], path: Path, role: Role, kind: Kind
) -> None:
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
        if name == "name" and isinstance(inner, str) and (given or path[-1:] == ("delta",)):
            _add_texts(found, inner, _below(path, name), role, "name")
            continue
        if name in _MEDIA and not (name == "data" and typed == "text"):
            _add_media(found, inner, _below(path, name), role, name in _MEDIA_BYTES)
            continue
        if name in _NO_TEXT:
            continue
        if (name == "input" and typed in _CALL_TYPES) or (
            name == "arguments" and not isinstance(inner, str)
        ):
            _add_arguments(found, inner, _below(path, name), role)
            continue
        _add_texts(found, inner, _below(path, name), role, kind_of(name, kind))


def kind_of(name: str, around: Kind) -> Kind:
    """The kind of a text by its field's name."""
    if name in _THINKING:
        return "thinking"
    if name in _ARGUMENTS:
        return "arguments"
    return "refusal" if name == "refusal" else around


def _add_media(found: list[TextSpan], value: Any, path: Path, role: Role, is_bytes: bool) -> None:
    """Add texts in place of media: text behind `data:`, or what is not base64."""
    if isinstance(value, str):
        if value[:5].lower() == "data:":
            is_media = _DATA_ADDRESS.fullmatch(value) is not None
        else:
            is_media = not is_bytes or _BASE64.fullmatch(value) is not None
        if not is_media:
            found.append(TextSpan(path, role, "text", readable(value)))
    elif isinstance(value, list | dict):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            _add_media(found, one, _below(path, key), role, is_bytes)


def _add_words(found: list[TextSpan], value: Any, path: Path, role: Role) -> None:
    """Add all strings and names, except media, of fields that no dialect here describes."""
    if isinstance(value, str):
        if value and _DATA_ADDRESS.fullmatch(value) is None:
            found.append(TextSpan(path, role, "text", readable(value)))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            _add_words(found, one, _below(path, at), role)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key:
                found.append(TextSpan((*_below(path, key), NAME), role, "name", readable(key)))
            _add_words(found, one, _below(path, key), role)


def _add_definitions(found: list[TextSpan], value: Any, path: Path) -> None:
    """Add all strings of tools and schemas except names: they are instructions to the model."""
    if isinstance(value, str):
        _add_texts(found, value, path, "system", "text")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            _add_definitions(found, one, _below(path, at))
    elif isinstance(value, dict):
        for name, one in value.items():
            is_own = path[-1] in _OWN_NAMES
            if name in _VALUES and not (is_own and isinstance(one, dict)):
                _add_arguments(found, one, _below(path, name), "system")
            elif (
                is_own
                or name not in _DEFINITION_NAMES
                or (name == "format" and isinstance(one, dict))
            ):
                _add_definitions(found, one, _below(path, name))


def _add_arguments(found: list[TextSpan], value: Any, path: Path, role: Role) -> None:
    """All strings, numbers and names: any name in it is the tool's own."""
    if isinstance(value, str):
        if value:
            found.append(TextSpan(path, role, "argument", readable(value)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found.append(TextSpan(path, role, "argument", number_text(value)))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            _add_arguments(found, one, _below(path, at), role)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key:
                found.append(TextSpan((*_below(path, key), NAME), role, "name", readable(key)))
            _add_arguments(found, one, _below(path, key), role)


def number_text(value: float) -> str:
    """Its digits, without an exponent where it is a whole number."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _MOST_WHOLE
    return str(int(value)) if is_whole else str(value)
