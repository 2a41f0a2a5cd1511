"""Pictures, documents, videos and sounds as content blocks.

Bedrock takes bytes, or an object of Amazon S3; it fetches nothing from the web.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.bedrock.values import FORMATS
from headrace.protocol.neutral.part import Media

DOCUMENT_FIELDS = ("context", "citations")
"""Fields of a document that Bedrock has as Anthropic has them."""

_MAX_NAME_CHARACTERS = 200
_NAME_MARKS = frozenset(" -()[]")

# The first characters of a picture's base64, for clients that do not say what it is.
_PICTURES = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}


class MediaWriter:
    """A writer of the media of one request: no two documents of it may have the same name."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def write(self, media: Media, at: str) -> dict[str, Any]:
        """A content block. at: where the part is, for errors. Raises RequestError."""
        source = _source(media, at)
        block: dict[str, Any] = {"format": _format(media, at), "source": source}
        if media.kind == "document":
            block = {"name": self._document_name(media.name or "", block["format"]), **block}
            block |= {name: media.extra[name] for name in DOCUMENT_FIELDS if name in media.extra}
        return {media.kind: block}

    def _document_name(self, name: str, form: str) -> str:
        name = name.removesuffix(f".{form}")
        # Letters, digits, single spaces, hyphens, parentheses and square brackets.
        letters = (
            letter if letter in _NAME_MARKS or (letter.isascii() and letter.isalnum()) else " "
            for letter in name
        )
        clean = " ".join("".join(letters).split())[:_MAX_NAME_CHARACTERS].rstrip()
        number = len(self._names) + 1
        if not clean or clean in self._names:
            clean = f"{clean[: _MAX_NAME_CHARACTERS - 12] or 'Document'} {number}"
        while clean in self._names:
            number += 1
            clean = f"Document {number}"
        self._names.add(clean)
        return clean


def _source(media: Media, at: str) -> dict[str, Any]:
    if media.data is not None:
        if not media.data:
            raise _refused(media, at, "it has no bytes; omit it")
        return {"bytes": media.data}
    address = media.url or media.file_id or ""
    if address.startswith("s3://"):
        return {"s3Location": {"uri": address}}
    head, comma, data = address.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        return {"bytes": data}
    raise _refused(
        media,
        at,
        f"Bedrock does not fetch {shown(address[:80])}; send the bytes as base64 (a data: URL) "
        "or an s3:// address",
    )


def _format(media: Media, at: str) -> str:
    formats = FORMATS[media.kind]
    mime = media.mime.partition(";")[0].strip().lower()
    if not mime and media.url is not None and media.url.startswith("data:"):
        mime = media.url[5:100].partition(";")[0].lower()
    if mime in formats:
        return formats[mime]
    if mime.startswith("text/") and media.kind == "document":
        return "txt"
    ending = (media.name or media.url or media.file_id or "").rpartition(".")[2].lower()
    if not mime and ending in formats.values():
        return ending
    if not mime and media.kind == "image" and media.data is not None:
        for start, form in _PICTURES.items():
            if media.data.startswith(start):
                return form
    known = ", ".join(dict.fromkeys(formats))
    raise _refused(media, at, f"its type {shown(media.mime)} is not one of {known}")


def _refused(media: Media, at: str, why: str) -> RequestError:
    return RequestError(
        f"{at}: this {media.kind} cannot be sent to Bedrock: {why}",
        param=at,
        code="unsupported_media",
    )
