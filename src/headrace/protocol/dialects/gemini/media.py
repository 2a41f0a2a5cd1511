"""Pictures, recordings, videos and documents as parts of a request, and out of an answer.

Bytes go as inlineData, addresses as fileData: `https:` (the Gemini API reads public ones for its
newer models, Vertex AI for all), `gs:`, YouTube's, and files of the Gemini API by address or as
"files/{id}". A type must be named beside bytes, and by Vertex AI beside addresses too. Where a
client did not say it, it is told by the first bytes or by the address; where these tell nothing,
it is image/jpeg, audio/mpeg, video/mp4 or application/pdf by the kind of media.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.gemini.place import Place, VertexAi
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import mapping, text
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Media, Signature

MediaKind = Literal["image", "audio", "video", "document"]

_FILES = "https://generativelanguage.googleapis.com/v1beta/"
_YOUTUBE = frozenset(("youtube.com", "www.youtube.com", "m.youtube.com", "youtu.be"))
_OF_KIND: dict[MediaKind, str] = {
    "image": "image/jpeg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "document": "application/pdf",
}
# What base64 of a file of this type begins with.
_FIRST = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("JVBERi0", "application/pdf"),
    ("SUQz", "audio/mpeg"),
    ("T2dnUw", "audio/ogg"),
    ("ZkxhQw", "audio/flac"),
)
_ENDINGS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "mpeg": "video/mpeg",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "html": "text/html",
    "csv": "text/csv",
    "md": "text/markdown",
}


def write_media(media: Media, place: Place) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The part, and what of `media` it does not say; raises RequestError for another's file id."""
    dropped = [] if media.detail in (None, "auto") else ["messages.detail"]
    inline = _inline(media)
    held: dict[str, Any]
    if inline is not None:
        mime, data = inline
        held = {"mimeType": mime, "data": data}
        part: dict[str, Any] = {"inlineData": held}
    else:
        held = _file(media, place)
        part = {"fileData": held}
    if media.name:
        if isinstance(place, VertexAi):
            held["displayName"] = media.name
        else:
            dropped.append("messages.title")
    if media.signature is not None and media.signature.origin == DIALECT:
        part["thoughtSignature"] = media.signature.value
    return part, tuple(dropped)


def read_media(part: dict[str, Any]) -> Media:
    """The media of a part with inlineData or fileData; raises DamagedReplyError without any."""
    held = mapping(part.get("inlineData")) or mapping(part.get("fileData"))
    mime, data, url = text(held.get("mimeType")), text(held.get("data")), text(held.get("fileUri"))
    if bool(data) == bool(url):
        raise DamagedReplyError("a part's inlineData or fileData holds no data")
    signature = text(part.get("thoughtSignature"))
    return Media(
        kind=_kind_of(mime),
        mime=mime,
        data=data or None,
        url=url or None,
        signature=Signature(DIALECT, signature) if signature else None,
    )


def _inline(media: Media) -> tuple[str, str] | None:
    """Type and base64, None for what lies elsewhere."""
    if media.data is not None:
        return media.mime or _sniffed(media.data) or _OF_KIND[media.kind], media.data
    if media.url is None or not media.url.startswith("data:"):
        return None
    head, _, data = media.url.partition(",")
    if not head.endswith(";base64"):
        raise RequestError(
            f"the address {shown(media.url)} is a data URI without ';base64': send its bytes as "
            "base64",
            param="messages",
        )
    return head[5:-7].partition(";")[0] or _sniffed(data) or _OF_KIND[media.kind], data


def _file(media: Media, place: Place) -> dict[str, Any]:
    url = media.url if media.url is not None else _address_of(media.file_id or "")
    mime = media.mime or _mime_of(url)
    if not mime and isinstance(place, VertexAi):
        mime = _OF_KIND["video" if _is_youtube(url) else media.kind]
    return {"mimeType": mime, "fileUri": url} if mime else {"fileUri": url}


def _address_of(file_id: str) -> str:
    if file_id.startswith(("https://", "gs://")):
        return file_id
    if file_id.startswith("files/"):
        return _FILES + file_id
    raise RequestError(
        f"file {shown(file_id)} is not one of Google's ('files/...', 'gs://...' or "
        "'https://...'): send its content instead",
        param="messages",
        code="unsupported_file_id",
    )


def _sniffed(data: str) -> str:
    for first, mime in _FIRST:
        if data.startswith(first):
            return mime
    if data.startswith("UklGR"):  # RIFF, which says nine bytes on of what
        return {"RUJQ": "image/webp", "QVZF": "audio/wav"}.get(data[12:16], "")
    return ""


def _is_youtube(url: str) -> bool:
    try:
        return (urlsplit(url).hostname or "") in _YOUTUBE
    except ValueError:
        return False


def _mime_of(url: str) -> str:
    try:
        path = urlsplit(url).path
    except ValueError:
        return ""
    return _ENDINGS.get(path.rpartition(".")[2].lower(), "")


def _kind_of(mime: str) -> MediaKind:
    kind = mime.partition("/")[0]
    if kind == "image":
        return "image"
    if kind == "audio":
        return "audio"
    return "video" if kind == "video" else "document"
