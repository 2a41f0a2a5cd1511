"""Media of requests."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.gemini import GeminiApi, VertexAi
from headrace.protocol.dialects.gemini.media import read_media, write_media
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Media, Signature

API = GeminiApi()
VERTEX = VertexAi(project="p", location="global")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("kind", "mime", "data", "sent"),
    [
        ("image", "image/webp", "QUJD", "image/webp"),
        ("image", "", b64(b"\x89PNG\r\n\x1a\n0000"), "image/png"),
        ("image", "", b64(b"\xff\xd8\xff\xe0"), "image/jpeg"),
        ("image", "", b64(b"GIF89a"), "image/gif"),
        ("image", "", b64(b"RIFF\x10\x20\x30\x40WEBPVP8 "), "image/webp"),
        ("audio", "", b64(b"RIFF\xff\xff\xff\xffWAVEfmt "), "audio/wav"),
        ("audio", "", b64(b"ID3\x03"), "audio/mpeg"),
        ("audio", "", b64(b"OggS\x00"), "audio/ogg"),
        ("audio", "", b64(b"fLaC\x00"), "audio/flac"),
        ("document", "", b64(b"%PDF-1.7"), "application/pdf"),
        ("image", "", "QUJD", "image/jpeg"),
        ("video", "", "QUJD", "video/mp4"),
    ],
)
def test_bytes_have_a_type(kind: Any, mime: str, data: str, sent: str) -> None:
    part, dropped = write_media(Media(kind=kind, mime=mime, data=data), API)
    assert part == {"inlineData": {"mimeType": sent, "data": data}}
    assert dropped == ()


def test_a_data_uri_is_bytes() -> None:
    for url, mime in (
        ("data:image/png;base64,QUJD", "image/png"),
        ("data:text/plain;charset=utf-8;base64,QUJD", "text/plain"),
        ("data:;base64,QUJD", "image/jpeg"),
    ):
        part, _ = write_media(Media(kind="image", url=url), API)
        assert part == {"inlineData": {"mimeType": mime, "data": "QUJD"}}
    with pytest.raises(RequestError, match="base64"):
        write_media(Media(kind="image", url="data:text/plain,hi"), API)


@pytest.mark.parametrize(
    ("media", "api", "vertex"),
    [
        (Media(kind="image", url="https://a.de/b.png?c=d"), "image/png", "image/png"),
        (Media(kind="image", url="https://a.de/b"), None, "image/jpeg"),
        (Media(kind="image", url="https://a.de/b", mime="image/heic"), "image/heic", "image/heic"),
        (Media(kind="document", url="gs://b/c.pdf"), "application/pdf", "application/pdf"),
        (Media(kind="image", url="https://youtu.be/abc"), None, "video/mp4"),
        (Media(kind="video", url="https://www.youtube.com/watch?v=a"), None, "video/mp4"),
        (Media(kind="document", url="https://[bad"), None, "application/pdf"),
    ],
    ids=lambda one: str(getattr(one, "url", one)),
)
def test_addresses(media: Media, api: str | None, vertex: str) -> None:
    for place, mime in ((API, api), (VERTEX, vertex)):
        part, dropped = write_media(media, place)
        typed = {} if mime is None else {"mimeType": mime}
        assert part == {"fileData": {**typed, "fileUri": media.url}}
        assert dropped == ()


def test_files_of_google_by_id_and_those_of_others() -> None:
    base = "https://generativelanguage.googleapis.com/v1beta/files/abc"
    for file_id in ("files/abc", base):
        part, _ = write_media(Media(kind="document", file_id=file_id), API)
        assert part == {"fileData": {"fileUri": base}}
    with pytest.raises(RequestError) as refused:
        write_media(Media(kind="document", file_id="file-9aZ"), API)
    assert refused.value.param == "messages"
    assert refused.value.code == "unsupported_file_id"


def test_name_detail_and_signature() -> None:
    media = Media(
        kind="image",
        mime="image/png",
        data="QUJD",
        name="a.png",
        detail="high",
        signature=Signature("gemini", "c2ln"),
    )
    part, dropped = write_media(media, API)
    assert part == {
        "inlineData": {"mimeType": "image/png", "data": "QUJD"},
        "thoughtSignature": "c2ln",
    }
    assert dropped == ("messages.detail", "messages.title")
    part, dropped = write_media(media, VERTEX)
    assert part["inlineData"]["displayName"] == "a.png"
    assert dropped == ("messages.detail",)
    foreign = Media(kind="image", data="QUJD", detail="auto", signature=Signature("openai", "x"))
    part, dropped = write_media(foreign, API)
    assert "thoughtSignature" not in part
    assert dropped == ()


def test_what_is_read_is_written_as_it_was() -> None:
    for part in (
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}, "thoughtSignature": "c2ln"},
        {"fileData": {"mimeType": "audio/wav", "fileUri": "gs://a/b"}},
    ):
        assert write_media(read_media(part), VERTEX)[0] == part


@pytest.mark.parametrize(
    "part", [{}, {"inlineData": {}}, {"inlineData": {"data": 5}}, {"fileData": "x"}], ids=str
)
def test_media_without_data(part: dict[str, Any]) -> None:
    with pytest.raises(DamagedReplyError):
        read_media(part)
