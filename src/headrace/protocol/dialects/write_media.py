"""Pictures and other media as addresses, and documents as text, for Cohere and Mistral."""

from __future__ import annotations

import binascii
from base64 import b64decode

from headrace.errors import RequestError
from headrace.protocol.neutral.part import Media

# How the first bytes of a file look in base64.
_MARKS = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", "application/pdf"),
)
_TEXT_TYPES = frozenset(
    ("application/json", "application/xml", "application/yaml", "application/x-yaml")
)


def address(media: Media, path: str, provider: str) -> str:
    """A URL, or data as a data URI; raises RequestError where there is neither, or no type."""
    if media.url is not None:
        return media.url
    if media.data is None:
        raise refused(media, path, f"{provider} cannot open another vendor's file id")
    mime = media.mime
    if not mime:
        mime = next((kind for mark, kind in _MARKS if media.data.startswith(mark)), "")
    if not mime:
        raise refused(media, path, "its type is missing, such as image/png")
    return f"data:{mime};base64,{media.data}"


def is_text(media: Media) -> bool:
    """Whether its type is one of text."""
    mime = media.mime.partition(";")[0].strip().lower()
    return mime.startswith("text/") or mime in _TEXT_TYPES


def document_text(media: Media, path: str, provider: str) -> str:
    """The text of a document; raises RequestError if it is none, or is not there."""
    if not is_text(media):
        mime = media.mime or "an unknown type"
        raise refused(media, path, f"{provider} accepts text documents, not {mime}")
    if media.data is None:
        raise refused(media, path, f"{provider} does not fetch documents")
    try:
        return b64decode(media.data, validate=True).decode()
    except (binascii.Error, ValueError):
        raise refused(media, path, "its data is not base64 of UTF-8 text") from None


def refused(media: Media, path: str, why: str) -> RequestError:
    """The error to raise for media that cannot be given on."""
    return RequestError(
        f"{path}: the {media.kind} cannot be passed on: {why}; send it in another form, omit it "
        "or choose another provider",
        param=path,
    )
