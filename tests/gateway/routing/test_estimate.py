"""About how many tokens a body has: media are no text, and text is no media."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import Any

import pytest

from headrace.gateway.routing.estimate import estimate
from headrace.protocol.json_object import JsonObject

PICTURE = base64.b64encode(random.Random(1).randbytes(675_000)).decode()
PDF = base64.b64encode(b"%PDF-1.7" + random.Random(1).randbytes(675_000)).decode()
URI = f"data:image/png;base64,{PICTURE}"
WORDS = "".join(random.Random(2).choices(string.ascii_letters, k=5)) + " "


def of(body: Any, **more: Any) -> int:
    return raw(json.dumps(body, **more).encode())


def raw(body: bytes) -> int:
    return estimate(JsonObject.read(body))


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
        assert least <= of(body, **more) <= most + 200


def test_slashes_may_be_escaped_and_lines_broken() -> None:
    escaped = json.dumps(turn(anthropic(PICTURE))).replace("/", "\\/").encode()
    assert raw(escaped) < 2000
    lines = base64.encodebytes(random.Random(1).randbytes(675_000)).decode()
    assert of(turn(anthropic(lines))) < 2000


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
    assert 3200 <= of(turn(block, block)) <= 3400


@pytest.mark.parametrize("kind", ["document_url", "video_url", "audio_url"])
def test_a_file_elsewhere_counts_as_one_sent_along(kind: str) -> None:
    block = {"type": kind, kind: {"url": "https://example.com/a"}}
    assert 6000 <= of(turn(block, block)) <= 6200


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ('"image_url",', '"image_ur\\u006c",'),
        ('"image_url",', '"\\u0069mage_url",'),
        ('"image_url",', '"image\\u005Furl",'),
        ('"type"', '"\\u0074ype"'),
        ("image_url", "\\u0069\\u006d\\u0061\\u0067\\u0065\\u005f\\u0075\\u0072\\u006C"),
    ],
)
def test_no_escape_hides_a_picture(plain: str, escaped: str) -> None:
    block = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = json.dumps(turn(*[block] * 50))
    assert json.loads(body.replace(plain, escaped)) == json.loads(body)
    assert raw(body.replace(plain, escaped).encode()) >= raw(body.encode()) >= 80_000


def test_an_escaped_letter_in_a_text_is_no_picture() -> None:
    text = json.dumps({"type": "image_url"}).replace("l", "\\u006c")
    assert of(turn({"type": "text", "text": text})) < 100


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
    assert of(body) >= 290_000


def tool(default: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "default": default}}}
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


USED = {"type": "tool_use", "id": "1", "name": "f", "input": {"url": URI}}


@pytest.mark.parametrize("more", [{}, {"indent": 1}], ids=str)
@pytest.mark.parametrize(
    "body",
    [
        {**turn(), "tools": [tool({"url": URI})]},
        {**turn(), "tools": [tool({"images": PICTURE})]},
        {**turn(), "tools": [tool({"images": [PICTURE]})]},
        {**turn(), "tools": [tool({"file_data": PICTURE})]},
        {**turn(), "tools": [{"format": "x", "data": PICTURE}]},
        {**turn(), "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"const": {"url": URI}}}}},
        turn(USED),
        turn({"type": "text", "text": "a"}, USED, {"type": "tool_result", "content": "b"}),
        turn({**USED, "input": {"a": [{"b": {"source": anthropic(PICTURE)}}]}}),
        {"messages": [{"role": "assistant", "tool_calls": [
            {"function": {"name": "f", "arguments": {"file_data": PICTURE}}}]}]},
        {"input": [{"type": "computer_call", "action": {"url": URI}}]},
        {"input": [{"type": "mcp_list_tools", "tools": [{"input_schema": {"url": URI}}]}]},
        {"system": [{"type": "text", "text": "a", "url": URI}], **turn()},
        # Too deep to tell.
        turn([[[[[{"input": {"url": URI}, "url": URI}]]]]]),
    ],
)  # fmt: skip
def test_what_tools_are_or_are_given_is_text(body: Any, more: dict[str, Any]) -> None:
    assert of(body, **more) >= 290_000


@pytest.mark.parametrize("mark", ["input", "\\u0069nput", "inpu\\u0074"])
def test_pictures_beside_what_tools_are_given_are_pictures(mark: str) -> None:
    """However the name is spelt that tells the one from the other."""
    result = {"type": "tool_result", "tool_use_id": "1", "content": [anthropic(PICTURE)]}
    body = json.dumps(turn({**USED, "input": {"a": "b"}}, result, anthropic(PICTURE)), indent=1)
    assert 3200 <= raw(body.replace('"input"', f'"{mark}"').encode()) <= 4500
    body = json.dumps(turn(USED, result, anthropic(PICTURE)))
    assert 300_000 <= raw(body.replace('"input"', f'"{mark}"').encode()) <= 310_000


def test_a_name_that_is_written_like_a_field_announces_nothing() -> None:
    part = {"type": "x", f'url":"data:image/png;base64,{PICTURE}"': 1, "input": {}}
    assert of(turn(part)) >= 290_000


@pytest.mark.parametrize("field", ["prompt", "input"])
def test_of_a_list_of_token_ids_each_is_a_token(field: str) -> None:
    assert 100_000 <= of({field: [1] * 100_000}, separators=(",", ":")) <= 100_100
    assert 100_000 <= of({field: [[1] * 1000] * 100}, separators=(",", ":")) <= 101_000
    assert 200_000 <= of({field: [10_000] * 100_000}, separators=(",", ":")) <= 200_100
    words = {field: ["some words, and some more"] * 1000}
    assert of(words) <= len(json.dumps(words)) // 3 + 8


def test_a_body_of_very_many_strings_counts_as_text_and_not_less() -> None:
    """It is not searched as closely."""
    picture = {"type": "image_url", "image_url": {"url": URI}}
    dense = json.dumps({**turn(picture), "stop": [""] * 300_000}).encode()
    assert raw(dense) >= len(dense) // 3 + 1600
    assert raw(dense.replace(b'"image_url"', b'"image_ur\\u006c"')) >= len(dense) // 3 + 1600
    escaped = json.dumps({**turn("é" * 300_000)}).encode()
    assert raw(escaped) >= 200_000


def test_where_very_much_is_given_to_tools_all_is_text() -> None:
    used = [{"type": "tool_use", "input": {"a": 1}}] * 10_000
    assert of(turn(*used, anthropic(PICTURE))) >= 290_000


@pytest.mark.parametrize("text", ["你好" * 300, "привет" * 300, "😀" * 300, "né" * 300])
def test_an_escaped_character_counts_as_it_is_in_utf_8(text: str) -> None:
    assert of(turn(text)) == of(turn(text), ensure_ascii=False)


def test_an_escaped_backslash_is_no_escape() -> None:
    body = turn("\\u4f60" * 1000)
    assert of(body) >= len(json.dumps(body)) // 3
