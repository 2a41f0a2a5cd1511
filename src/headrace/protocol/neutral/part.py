"""The parts that a message is made of.

A part that another vendor made may hold what only that vendor understands: a signature. It goes
back to its origin as it came and to nobody else; `Signature.origin` says whose it is.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Lifetime = Literal["5m", "1h"]


class Signature(msgspec.Struct, frozen=True):
    """Bytes of a vendor, opaque to us. origin: "anthropic", "gemini", "openai" or "mistral"."""

    origin: str
    value: str


class CacheMark(msgspec.Struct, frozen=True):
    """The prompt up to and with this part is worth keeping. lifetime: None for the vendor's own."""

    lifetime: Lifetime | None = None


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Plain text. extra: fields of the part that have no neutral form (citations, annotations)."""

    text: str
    cache: CacheMark | None = None
    signature: Signature | None = None
    extra: dict[str, Any] = {}


class Refusal(msgspec.Struct, frozen=True):
    """The model's own words on why it does not answer."""

    text: str


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """An image, a recording, a video or a document.

    Exactly one of url, data (base64, without line ends) and file_id is set. mime: "" if unknown.
    detail: OpenAI's "low", "high" or "auto" for images. name: of a document. signature: of
    a picture that a thinking model made (Gemini).
    extra: fields of the part that have no neutral form (a document's context).
    """

    kind: Literal["image", "audio", "video", "document"]
    mime: str = ""
    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    name: str | None = None
    detail: str | None = None
    cache: CacheMark | None = None
    signature: Signature | None = None
    extra: dict[str, Any] = {}


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """What a model thought before it answered.

    redacted: `text` is empty and the signature holds what nobody may read. summary: the text is
    about the thoughts and not the thoughts themselves.
    """

    text: str
    signature: Signature | None = None
    redacted: bool = False
    summary: bool = False
    id: str | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """The model wants a tool run. arguments: JSON text as the model wrote it, perhaps invalid.

    extra: fields of the part that have no neutral form (Anthropic's caller).
    """

    id: str
    name: str
    arguments: str
    signature: Signature | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call. name: of the tool, where the dialect says it; "" otherwise."""

    call_id: str
    content: tuple[Text | Media, ...]
    name: str = ""
    is_error: bool = False
    cache: CacheMark | None = None


class Opaque(msgspec.Struct, frozen=True):
    """A part that only the dialect it came in knows: given to providers of that dialect alone."""

    dialect: str
    value: dict[str, Any]


Part: TypeAlias = Text | Refusal | Media | Thinking | ToolCall | ToolResult | Opaque
