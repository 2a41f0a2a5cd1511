"""Images and documents, with their sources, in both directions.

Documents are PDF, or plain text that this dialect writes as text. What has a source of another
kind (a document made of blocks) has no neutral form and stays Opaque.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.anthropic.request.cache_marks import marked
from headrace.protocol.dialects.anthropic.values import rest, text
from headrace.protocol.neutral.part import CacheMark, Media

FILES_BETA = "files-api-2025-04-14"
"""What anthropic-beta has to hold for a source that is a file."""

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_PDF = "application/pdf"
_PLAIN = "text/plain"
# How the base64 text of a file begins, for data whose type nobody told.
_BEGINNINGS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi", _PDF),
)
_KNOWN = frozenset({"type", "source", "title", "cache_control"})


def read_media(block: dict[str, Any], mark: CacheMark | None) -> Media | None:
    """An "image" or "document" block; None for one without a neutral form."""
    kind = "image" if block.get("type") == "image" else "document"
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    name = block.get("title")
    common: dict[str, Any] = {
        "kind": kind,
        "name": name if isinstance(name, str) else None,
        "cache": mark,
        "extra": rest(block, _KNOWN),
    }
    data, mime = source.get("data"), text(source.get("media_type"))
    match source.get("type"):
        case "base64" if isinstance(data, str):
            return Media(data=data, mime=mime, **common)
        case "text" if isinstance(data, str):
            return Media(data=b64encode(data.encode()).decode(), mime=mime or _PLAIN, **common)
        case "url" if isinstance(source.get("url"), str):
            return Media(url=source["url"], mime="" if kind == "image" else _PDF, **common)
        case "file" if isinstance(source.get("file_id"), str):
            return Media(file_id=source["file_id"], **common)
    return None


def write_media(part: Media, path: str, *, own: bool) -> dict[str, Any]:
    """The block of a request, without `extra`; raises RequestError for what the API cannot take.

    own: the call came in this dialect, so that its fields are all known and its files are here.
    """
    if part.kind not in ("image", "document"):
        raise RequestError(
            f"{path}: this provider does not accept {part.kind}; send text, an image or a "
            "document, or choose a model that accepts it",
            param=path,
            code="unsupported",
        )
    block: dict[str, Any] = {"type": part.kind, "source": _source(part, path, own=own)}
    if part.kind == "document" and part.name is not None:
        block["title"] = part.name
    return marked(block, part.cache)


def _source(part: Media, path: str, *, own: bool) -> dict[str, Any]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is not None:
        if not own:
            raise RequestError(
                f"{path}: the file {shown(part.file_id)} is stored at another vendor, where "
                "this provider cannot read it; send its content as base64",
                param=path,
                code="unsupported",
            )
        return {"type": "file", "file_id": part.file_id}
    data = part.data or ""
    mime = part.mime.partition(";")[0].strip().lower() or _type_of(data)
    if part.kind == "document" and (mime.startswith("text/") or mime == "application/json"):
        return {"type": "text", "media_type": _PLAIN, "data": _plain(data, path)}
    allowed = IMAGE_TYPES if part.kind == "image" else (_PDF,)
    mime = "image/jpeg" if mime == "image/jpg" else mime
    if mime not in allowed and not own:
        raise RequestError(
            f"{path}: this provider does not accept {part.kind} of type {shown(mime)}; send "
            f"{' or '.join(allowed)}",
            param=path,
            code="unsupported",
        )
    return {"type": "base64", "media_type": mime, "data": data}


def _plain(data: str, path: str) -> str:
    try:
        return b64decode(data).decode()
    except (binascii.Error, ValueError):
        raise RequestError(
            f"{path}: the document is declared as text, but is not UTF-8 in base64; send it as "
            "UTF-8 in base64",
            param=path,
        ) from None


def _type_of(data: str) -> str:
    return next((mime for begin, mime in _BEGINNINGS if data.startswith(begin)), "")
