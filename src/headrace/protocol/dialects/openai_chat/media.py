"""Pictures, recordings, videos and documents: OpenAI's content parts, and what others added.

`image_url`, `input_audio` and `file` are OpenAI's; `video_url` and `audio_url` vLLM's and
OpenRouter's. Data comes as a data URI, or as plain base64 beside a format.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.values import left_over, mapping, text
from headrace.protocol.neutral.part import CacheMark, Media

_AUDIO_MIMES = {"mp3": "audio/mpeg", "m4a": "audio/mp4", "pcm16": "audio/pcm"}
_AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/pcm": "pcm16",
}


def split_data_uri(url: str) -> tuple[str, str] | None:
    """Type and base64 of a data URI, None for any other address."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head[5:-7].partition(";")[0], data


def data_uri(media: Media) -> str:
    """Its address, or its content as a data URI."""
    if media.url is not None:
        return media.url
    return f"data:{media.mime or 'application/octet-stream'};base64,{media.data or ''}"


_OUTER = frozenset({"type", "cache_control", "prompt_cache_breakpoint"})
_INNER = frozenset({"url", "detail", "data", "format", "filename", "file_data", "file_id"})


def read_media(kind: str, part: dict[str, Any], cache: CacheMark | None) -> Media | None:
    """A content part of type `kind`; None if it holds nothing that can be one.

    extra: unknown fields of the part, and below `kind` those of the object inside.
    """
    media = _read_media(kind, part, cache)
    if media is None:
        return None
    extra = left_over(part, _OUTER | {kind})
    inner = left_over(mapping(part.get(kind)), _INNER)
    if inner:
        extra[kind] = inner
    return msgspec.structs.replace(media, extra=extra) if extra else media


def _read_media(kind: str, part: dict[str, Any], cache: CacheMark | None) -> Media | None:
    if kind == "input_audio":
        sound = mapping(part.get("input_audio"))
        form = text(sound.get("format")).lower()
        mime = _AUDIO_MIMES.get(form, f"audio/{form}" if form else "")
        data = text(sound.get("data"))
        split = split_data_uri(data)
        if split is not None:
            mime, data = split
        return Media(kind="audio", mime=mime, data=data, cache=cache) if data else None
    if kind == "file":
        return _read_file(mapping(part.get("file")), cache)
    value = part.get(kind)
    url = text(value) or text(mapping(value).get("url"))
    if not url:
        return None
    split = split_data_uri(url)
    what = {"image_url": "image", "video_url": "video", "audio_url": "audio"}[kind]
    return Media(
        kind=what,  # type: ignore[arg-type]
        mime=split[0] if split else "",
        data=split[1] if split else None,
        url=None if split else url,
        detail=text(mapping(value).get("detail")) or None,
        cache=cache,
    )


def _read_file(file: dict[str, Any], cache: CacheMark | None) -> Media | None:
    name = text(file.get("filename")) or None
    file_id, data = text(file.get("file_id")), text(file.get("file_data"))
    if file_id:
        return Media(kind="document", file_id=file_id, name=name, cache=cache)
    if not data:
        return None
    split = split_data_uri(data)
    if split is not None:
        return Media(kind="document", mime=split[0], data=split[1], name=name, cache=cache)
    if data.startswith(("https://", "http://")):  # OpenRouter
        return Media(kind="document", url=data, name=name, cache=cache)
    return Media(kind="document", data=data, name=name, cache=cache)


def write_media(media: Media) -> dict[str, Any] | None:
    """A content part of a user's message; None if this format has none for it."""
    if media.kind == "document":
        return _write_file(media)
    if media.file_id is not None:
        return None
    if media.kind == "image":
        image = {"url": data_uri(media)}
        if media.detail is not None:
            image["detail"] = media.detail
        return {"type": "image_url", "image_url": image}
    if media.kind == "audio" and media.data is not None:
        form = _AUDIO_FORMATS.get(media.mime, media.mime.partition("/")[2] or "wav")
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}
    kind = f"{media.kind}_url"
    return {"type": kind, kind: {"url": data_uri(media)}}


def _write_file(media: Media) -> dict[str, Any]:
    file: dict[str, Any] = {}
    if media.name is not None:
        file["filename"] = media.name
    if media.file_id is not None:
        file["file_id"] = media.file_id
    elif media.url is None and not media.mime:
        file["file_data"] = media.data
    else:
        file["file_data"] = data_uri(media)
    return {"type": "file", "file": file}
