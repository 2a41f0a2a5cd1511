"""Pictures, recordings and documents: the parts input_image, input_audio and input_file."""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_responses.request.fields import (
    mapping_of,
    missing,
    required_string,
    string,
)
from headrace.protocol.dialects.openai_responses.values import rest
from headrace.protocol.neutral.part import CacheMark, Media

_AUDIO_MIMES = {"mp3": "audio/mpeg"}
_AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
}
_IMAGE = frozenset({"type", "image_url", "file_id", "detail"})
_FILE = frozenset({"type", "file_data", "file_id", "file_url", "filename", "detail"})
_AUDIO = frozenset({"type", "input_audio"})

MEDIA_TYPES = frozenset({"input_image", "input_file", "input_audio"})


def cache_mark(part: dict[str, Any]) -> CacheMark | None:
    """`prompt_cache_breakpoint` as a mark; its lifetimes are none of ours, they stay in extra."""
    return CacheMark() if isinstance(part.get("prompt_cache_breakpoint"), dict) else None


def read_media(part: dict[str, Any], at: str) -> Media:
    """A content part of one of MEDIA_TYPES. at: its path, ending in "."."""
    kind = part["type"]
    if kind == "input_audio":
        return _read_audio(part, at)
    if kind == "input_image":
        url = string(part, "image_url", at)
        file_id = string(part, "file_id", at)
        if not url and not file_id:
            raise missing(f"{at}image_url", "give an address, a data URI or a file_id")
        mime, data, address = _split(url or "")
        return Media(
            kind="image",
            mime=mime,
            data=data,
            url=address,
            file_id=None if url else file_id,
            detail=string(part, "detail", at),
            cache=cache_mark(part),
            extra=rest(part, _IMAGE),
        )
    return _read_file(part, at)


def _read_audio(part: dict[str, Any], at: str) -> Media:
    sound = mapping_of(part, "input_audio", at)
    if sound is None:
        raise missing(f"{at}input_audio")
    form = required_string(sound, "format", f"{at}input_audio.")
    return Media(
        kind="audio",
        mime=_AUDIO_MIMES.get(form, f"audio/{form}"),
        data=required_string(sound, "data", f"{at}input_audio."),
        cache=cache_mark(part),
        extra=rest(part, _AUDIO),
    )


def _read_file(part: dict[str, Any], at: str) -> Media:
    file_data, url = string(part, "file_data", at), string(part, "file_url", at)
    file_id = string(part, "file_id", at)
    mime, data, address = "", None, url or None
    if file_data:
        mime, data, address = _split(file_data)
        if data is None:  # plain base64
            data, address = file_data, None
    elif not url and not file_id:
        raise missing(f"{at}file_data", "give file_data, file_url or file_id")
    return Media(
        kind="document",
        mime=mime,
        data=data,
        url=address,
        file_id=None if file_data or url else file_id,
        name=string(part, "filename", at),
        detail=string(part, "detail", at),
        cache=cache_mark(part),
        extra=rest(part, _FILE),
    )


def _split(url: str) -> tuple[str, str | None, str | None]:
    """Type, base64 and address; a data URI has the first two, any other address the last."""
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            return head[5:-7].partition(";")[0], data, None
    return "", None, url or None


def data_uri(media: Media) -> str:
    """Its address, or its content as a data URI."""
    if media.url is not None:
        return media.url
    if media.kind == "document" and not media.mime:
        return media.data or ""
    return f"data:{media.mime or 'application/octet-stream'};base64,{media.data or ''}"


def write_media(media: Media, at: str, *, takes_audio: bool, takes_ids: bool) -> dict[str, Any]:
    """A content part; raises RequestError for what this API cannot be shown.

    at: its place. takes_audio: recordings may be sent; OpenAI's description of this API has them
    for no message, so only a client that speaks it itself may try. takes_ids: file ids are
    OpenAI's.
    """
    if media.file_id is not None and not takes_ids:
        raise RequestError(
            f"{at}: the {media.kind} is a file stored at another vendor; send its data or address",
            param=at,
            code="unsupported_media",
        )
    if media.kind == "image":
        part: dict[str, Any] = {"type": "input_image"}
        if media.file_id is not None:
            part["file_id"] = media.file_id
        else:
            part["image_url"] = data_uri(media)
        # OpenAI's description requires it; "auto" is what it takes for one that is missing.
        part["detail"] = media.detail or "auto"
        return part
    if media.kind == "document":
        return _write_file(media)
    form = _AUDIO_FORMATS.get(media.mime)
    if media.kind == "audio" and media.data is not None and form and takes_audio:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}
    raise RequestError(
        f"{at}: {media.kind} ({media.mime or 'of unknown type'}) cannot be sent to a provider of "
        "OpenAI's Responses API, which takes images and documents",
        param=at,
        code="unsupported_media",
    )


def _write_file(media: Media) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "input_file"}
    if media.file_id is not None:
        part["file_id"] = media.file_id
    elif media.url is not None:
        part["file_url"] = media.url
    else:
        part["file_data"] = data_uri(media)
    # The API takes no name beside an address: that has one.
    if media.name is not None and media.url is None:
        part["filename"] = media.name
    if media.detail is not None:
        part["detail"] = media.detail
    return part
