"""The parts that a message is made of.

A part that another vendor made may hold what only that vendor understands: a signature. It goes
back to its origin as it came and to nobody else; `Signature.origin` says whose it is.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from headrace.protocol.neutral.arguments import given_arguments
from headrace.protocol.neutral.citation import Citation

Lifetime = Literal["5m", "1h"]


class Signature(msgspec.Struct, frozen=True):
    """Bytes of a vendor, opaque to us."""

    origin: str
    """"anthropic", "gemini", "openai" or "mistral"."""
    value: str


class CacheMark(msgspec.Struct, frozen=True):
    """A mark that the prompt up to and including this part is worth caching."""

    lifetime: Lifetime | None = None
    """None for the vendor's default."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Plain text."""

    text: str
    cache: CacheMark | None = None
    signature: Signature | None = None
    citations: tuple[Citation, ...] = ()
    """The model's sources, in an answer; a dialect's own form of them is in `extra` too."""
    extra: dict[str, Any] = {}
    """Fields of the part that have no neutral form."""


class Refusal(msgspec.Struct, frozen=True):
    """The model's own words on why it does not answer."""

    text: str


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """An image, a recording, a video or a document.

    Exactly one of url, data (base64, without line ends) and file_id is set.
    """

    kind: Literal["image", "audio", "video", "document"]
    mime: str = ""
    """"" if unknown."""
    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    name: str | None = None
    """Of a document."""
    detail: str | None = None
    """OpenAI's "low", "high" or "auto" for images."""
    cache: CacheMark | None = None
    signature: Signature | None = None
    """Of a picture that a thinking model made (Gemini)."""
    extra: dict[str, Any] = {}
    """Fields of the part that have no neutral form (a document's context)."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """The thoughts of a model before it answered."""

    text: str
    signature: Signature | None = None
    redacted: bool = False
    """Whether `text` is empty and the signature holds what must not be read."""
    summary: bool = False
    """Whether the text is a summary of the thoughts and not the thoughts themselves."""
    id: str | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that the model requests."""

    id: str
    name: str
    arguments: str
    """JSON text as the model wrote it, perhaps invalid; "{}" where it gave nothing or null."""
    signature: Signature | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = {}
    """Fields of the part that have no neutral form (Anthropic's caller)."""

    def __post_init__(self) -> None:
        given = given_arguments(self.arguments)
        if given is not self.arguments:
            msgspec.structs.force_setattr(self, "arguments", given)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call."""

    call_id: str
    content: tuple[Text | Media, ...]
    name: str = ""
    """The tool's name, if the dialect has it; "" otherwise."""
    is_error: bool = False
    cache: CacheMark | None = None


class Opaque(msgspec.Struct, frozen=True):
    """A part that only the dialect it came in knows: given to providers of that dialect alone."""

    dialect: str
    value: dict[str, Any]


Part: TypeAlias = Text | Refusal | Media | Thinking | ToolCall | ToolResult | Opaque
