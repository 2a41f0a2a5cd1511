"""Pictures and documents as Converse wants them, in turns and in results."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Text,
    ToolResult,
)
from tests.protocol.dialects.bedrock.calls import (
    NOVA,
    call,
    contents,
    said,
    written,
)
from tests.protocol.dialects.bedrock.test_write_turns import DOT, PDF, PNG


@pytest.mark.parametrize(
    ("media", "block"),
    [
        (PNG, {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}),
        (
            Media(kind="image", data="/9j/4AAQ"),
            {"image": {"format": "jpeg", "source": {"bytes": "/9j/4AAQ"}}},
        ),
        (
            Media(kind="image", mime="image/webp", url="s3://bucket/a.webp"),
            {"image": {"format": "webp", "source": {"s3Location": {"uri": "s3://bucket/a.webp"}}}},
        ),
        (
            Media(kind="image", file_id="s3://bucket/a.gif"),
            {"image": {"format": "gif", "source": {"s3Location": {"uri": "s3://bucket/a.gif"}}}},
        ),
        (
            Media(kind="image", url="data:image/jpeg;base64,/9j/"),
            {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}},
        ),
        (
            Media(kind="video", mime="video/3gpp", data="AAAA"),
            {"video": {"format": "three_gp", "source": {"bytes": "AAAA"}}},
        ),
        (
            Media(kind="audio", mime="audio/wav", data="AAAA"),
            {"audio": {"format": "wav", "source": {"bytes": "AAAA"}}},
        ),
    ],
)
def test_media(media: Media, block: dict[str, Any]) -> None:
    assert contents(call(said("user", "see", media))) == [("user", [{"text": "see"}, block])]


@pytest.mark.parametrize(
    "media",
    [
        Media(kind="image", mime="image/png", url="https://a.example/b.png"),
        Media(kind="image", mime="image/png", url="http://a.example/b.png"),
        Media(kind="image", mime="image/png", file_id="file-123"),
        Media(kind="image", mime="image/png", data=""),
        Media(kind="image", mime="image/tiff", data="AAAA"),
        Media(kind="image", data="AAAA"),
        Media(kind="document", mime="application/zip", data="AAAA"),
        Media(kind="video", mime="video/ogg", data="AAAA"),
        Media(kind="audio", mime="audio/midi", data="AAAA"),
    ],
)
def test_media_that_bedrock_takes_not(media: Media) -> None:
    with pytest.raises(RequestError, match=media.kind) as raised:
        written(call(said("user", "see", media)))
    assert raised.value.param == "messages[0].parts[1]"


def test_media_that_no_result_may_hold_follow_it() -> None:
    sound = Media(kind="audio", mime="audio/wav", data="AAAA")
    result = ToolResult(call_id="t", content=(Text(text="a"), PNG, PDF), cache=CacheMark())
    other = ToolResult(call_id="u", content=(sound,))
    (turn,) = contents(call(said("tool", result, other)), NOVA)
    kinds = [next(iter(block)) for block in turn[1]]
    assert kinds == ["toolResult", "cachePoint", "toolResult", "text", "document", "audio"]
    held = [block["toolResult"]["content"] for block in turn[1] if "toolResult" in block]
    assert [[next(iter(one)) for one in content] for content in held] == [
        ["text", "image"],
        ["text"],
    ]
    assert held[1] == DOT


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("report.pdf", "report"),
        ("Q3 (final) [v2].pdf", "Q3 (final) [v2]"),
        ("a_b.c/d\n  e", "a b c d e"),
        ("größe", "gr e"),
        ("", "Document 1"),
        (None, "Document 1"),
        ("..", "Document 1"),
        ("x" * 300, "x" * 200),
    ],
)
def test_names_of_documents(name: str | None, clean: str) -> None:
    document = Media(kind="document", mime="application/pdf", data="JVBERg==", name=name)
    assert contents(call(said("user", "see", document)))[0][1][1] == {
        "document": {"name": clean, "format": "pdf", "source": {"bytes": "JVBERg=="}}
    }


def test_no_two_documents_have_one_name() -> None:
    unnamed = Media(kind="document", mime="text/x-log", data="AAAA")
    parts = (PDF, PDF, unnamed, unnamed, PDF)
    blocks = contents(call(said("user", "see", *parts)))[0][1][1:]
    names = [block["document"]["name"] for block in blocks]
    assert len(set(names)) == 5
    assert names[:2] == ["report", "report 2"]
    assert blocks[2]["document"]["format"] == "txt"


def test_a_document_has_text_beside_it() -> None:
    (turn,) = contents(call(said("user", PDF)))
    assert turn[1][0] == {"text": "."}
    assert "document" in turn[1][1]
    marked = Media(kind="document", mime="text/plain", data="AAAA", cache=CacheMark())
    (turn,) = contents(call(said("user", marked)))
    assert [next(iter(block)) for block in turn[1]] == ["text", "document", "text", "cachePoint"]


def test_pictures_and_documents_in_results() -> None:
    result = ToolResult(call_id="t", content=(Text(text=""), PNG, PDF))
    (turn,) = contents(call(said("tool", result)))
    assert turn[1] == [
        {
            "toolResult": {
                "toolUseId": "t",
                "content": [
                    {"text": ""},
                    {"image": {"format": "png", "source": {"bytes": PNG.data}}},
                    {
                        "document": {
                            "name": "report",
                            "format": "pdf",
                            "source": {"bytes": PDF.data},
                        }
                    },
                ],
            }
        }
    ]
