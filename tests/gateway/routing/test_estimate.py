"""About how many tokens a body has: media are no text, and text is no media."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import Any

import pytest

from headrace.gateway.routing.estimate import Estimate, estimate

PICTURE = base64.b64encode(random.Random(1).randbytes(675_000)).decode()
PDF = base64.b64encode(b"%PDF-1.7" + random.Random(1).randbytes(675_000)).decode()
URI = f"data:image/png;base64,{PICTURE}"
WORDS = "".join(random.Random(2).choices(string.ascii_letters, k=5)) + " "


def of(body: Any, **more: Any) -> Estimate:
    return estimate(json.dumps(body, **more).encode())


def turn(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}]}


def anthropic(data: str, mime: str = "image/png", kind: str = "image") -> dict[str, Any]:
    source = {"type": "base64", "media_type": mime, "data": data}
    return {"type": kind, "source": source}


@pytest.mark.parametrize(
    ("body", "least", "most"),
    [
        (turn(anthropic(PICTURE)), 1600, 1900),
        (turn({"type": "image_url", "image_url": {"url": URI}}), 1600, 1900),
        ({"input": [{"type": "input_image", "image_url": URI}]}, 1600, 1900),
        (turn({"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}),
         3000, 3100),
        (turn({"type": "file", "file": {"file_data": PICTURE}}), 3000, 3100),
        (turn({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}"}}),
         9000, 9100),
        (turn(anthropic(PDF, "application/pdf", "document")), 9000, 9100),
        ({"messages": [{"role": "user", "images": [PICTURE, PICTURE]}]}, 3600, 3700),
        ({"prompt": "What is it?", "images": [PICTURE]}, 1800, 1900),
        (turn(anthropic(PICTURE[:400_000]), anthropic(PICTURE[:400_000])), 3200, 3300),
    ],
)  # fmt: skip
def test_base64_in_a_field_for_media_is_no_text(body: Any, least: int, most: int) -> None:
    for more in ({}, {"indent": 2}, {"separators": (",", ":")}):
        found = of(body, **more)
        assert least <= found.media_tokens <= most
        assert found.tokens <= found.media_tokens + 200


def test_slashes_may_be_escaped_and_lines_broken() -> None:
    escaped = json.dumps(turn(anthropic(PICTURE))).replace("/", "\\/").encode()
    assert estimate(escaped).tokens < 2000
    lines = base64.encodebytes(random.Random(1).randbytes(675_000)).decode()
    assert of(turn(anthropic(lines))).tokens < 2000


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ],
)
def test_a_picture_elsewhere_counts_as_one_sent_along(block: Any) -> None:
    assert of(turn(block, block)).media_tokens == 3200


LONG = 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        turn({"type": "text", "text": "data:image/png;base64," + WORDS * (LONG // 6)}),
        turn({"type": "text", "text": URI}),
        turn({"type": "text", "text": PICTURE}),
        turn({"type": "text", "text": json.dumps(anthropic(PICTURE))}),
        turn({"type": "image_url", "image_url": {
            "url": "data:image/png;base64," + WORDS * (LONG // 6)}}),
        turn({"type": "document", "source": {"type": "text", "data": "word/" * (LONG // 5)}}),
        turn(anthropic("word\n" * (LONG // 5))),
        turn({"type": "file", "file": {"file_data": f"data:text/plain;base64,{PICTURE}"}}),
        {"tools": [{"name": "f", "data": PICTURE}], **turn()},
        {"messages": [{"role": "user", "images": [WORDS * (LONG // 6)]}]},
    ],
)  # fmt: skip
def test_what_is_no_media_is_text_whatever_it_says(body: Any) -> None:
    assert of(body).tokens >= 290_000


@pytest.mark.parametrize("text", ["你好" * 300, "привет" * 300, "😀" * 300, "né" * 300])
def test_an_escaped_character_counts_as_it_is_in_utf_8(text: str) -> None:
    assert of(turn(text)).tokens == of(turn(text), ensure_ascii=False).tokens


def test_an_escaped_backslash_is_no_escape() -> None:
    body = turn("\\u4f60" * 1000)
    assert of(body).tokens >= len(json.dumps(body)) // 3
