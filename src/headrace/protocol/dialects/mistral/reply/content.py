"""The `content` of a message or a delta: a text, or chunks of several types."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.protocol.dialects.json_values import objects, text
from headrace.protocol.dialects.mistral.names import DIALECT, SIGNER
from headrace.protocol.dialects.mistral.reply.citations import read_citations
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.event import Kind
from headrace.protocol.neutral.part import Opaque, Signature


class Piece(NamedTuple):
    """A piece of text or of thoughts."""

    kind: Kind
    text: str
    signature: Signature | None = None


class Sources(NamedTuple):
    """The sources of the text before them."""

    citations: tuple[Citation, ...]


def read_content(content: Any) -> list[Piece | Sources | Opaque]:
    """The pieces in order. Chunks that only Mistral knows are Opaque.

    Chunks among thoughts that are not text come after them.
    """
    if isinstance(content, str):
        return [Piece("text", content)] if content else []
    found: list[Piece | Sources | Opaque] = []
    for chunk in objects(content):
        kind = chunk.get("type", "text")
        if kind == "text":
            if text(chunk.get("text")):
                found.append(Piece("text", text(chunk.get("text"))))
        elif kind == "thinking":
            found += _thinking(chunk)
        elif citations := read_citations(chunk):
            found.append(Sources(citations))
        else:
            found.append(Opaque(DIALECT, chunk))
    return found


def _thinking(chunk: dict[str, Any]) -> list[Piece | Opaque]:
    thoughts = chunk.get("thinking")
    signed = text(chunk.get("signature"))
    signature = Signature(SIGNER, signed) if signed else None
    inner = objects(thoughts)
    words = text(thoughts) or "".join(text(one.get("text")) for one in inner if _is_text(one))
    found: list[Piece | Opaque] = []
    if words or signature is not None:
        found.append(Piece("thinking", words, signature))
    return found + [Opaque(DIALECT, one) for one in inner if not _is_text(one)]


def _is_text(chunk: dict[str, Any]) -> bool:
    return bool(chunk.get("type", "text") == "text")
