"""Content of clients' messages, read."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from headrace.protocol.dialects.anthropic.request.write_messages import BlockWriter
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.call import (
    Message,
)
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.anthropic.read_calls import read


def parts(*blocks: dict[str, Any], role: str = "user") -> tuple[Any, ...]:
    messages = read(messages=[{"role": role, "content": list(blocks)}]).messages
    return tuple(part for message in messages for part in message.parts)


def test_tool_results_are_turns_of_their_own() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "a", "content": "one", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": [
                {"type": "text", "text": "two"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                },
            ],
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "tool_result", "tool_use_id": "c"},
        {"type": "text", "text": "go on"},
    ]
    tool, user = read(messages=[{"role": "user", "content": content}]).messages
    assert tool == Message(
        role="tool",
        parts=(
            ToolResult(call_id="a", content=(Text(text="one"),), is_error=True),
            ToolResult(
                call_id="b",
                content=(
                    Text(text="two"),
                    Media(kind="image", mime="image/png", data="AAAA"),
                ),
                cache=CacheMark(),
            ),
            ToolResult(call_id="c", content=()),
        ),
    )
    assert user == Message(role="user", parts=(Text(text="go on"),))


def test_a_result_block_without_a_neutral_form_can_be_read_as_text() -> None:
    found = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "A",
        "content": [{"type": "text", "text": "words"}],
    }
    block = {"type": "tool_result", "tool_use_id": "a", "content": [found]}
    (result,) = parts(block)
    assert result.content == (Text(text="A\nhttps://a.example\nwords", extra={"block": found}),)


def test_pictures_and_documents() -> None:
    text = b64encode("Grüße".encode()).decode()
    sources: list[tuple[str, dict[str, Any], Media]] = [
        (
            "image",
            {"type": "base64", "media_type": "image/png", "data": "AA=="},
            Media(kind="image", mime="image/png", data="AA=="),
        ),
        ("image", {"type": "url", "url": "https://a"}, Media(kind="image", url="https://a")),
        ("image", {"type": "file", "file_id": "f"}, Media(kind="image", file_id="f")),
        (
            "document",
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            Media(kind="document", mime="application/pdf", data="JVBERi0="),
        ),
        (
            "document",
            {"type": "url", "url": "https://a"},
            Media(kind="document", mime="application/pdf", url="https://a"),
        ),
        (
            "document",
            {"type": "text", "media_type": "text/plain", "data": "Grüße"},
            Media(kind="document", mime="text/plain", data=text),
        ),
    ]
    for kind, source, media in sources:
        assert parts({"type": kind, "source": source}) == (media,)


def test_a_documents_fields() -> None:
    block = {
        "type": "document",
        "source": {"type": "url", "url": "https://a"},
        "title": "T",
        "context": "C",
        "citations": {"enabled": True},
        "cache_control": {"type": "ephemeral"},
    }
    (media,) = parts(block)
    assert (media.name, media.cache) == ("T", CacheMark())
    assert media.extra == {"context": "C", "citations": {"enabled": True}}


def test_blocks_that_only_this_dialect_knows() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "document", "source": {"type": "content", "content": []}},
        {"type": "compaction", "content": "so far"},
    ]
    assert parts(*blocks) == tuple(Opaque("anthropic", one) for one in blocks)


def test_thoughts_and_calls() -> None:
    signed = carried_id.pack("call_1", Signature("gemini", "sig"))
    found = parts(
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "thinking", "thinking": "hm", "signature": "headrace:gemini:G:1"},
        {"type": "thinking", "thinking": "so", "signature": "headrace:openai;summary;id=rs_1:E"},
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "D"},
        {"type": "redacted_thinking", "data": "headrace:openai:E"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}, "caller": {"type": "c"}},
        {"type": "tool_use", "id": signed, "name": "f", "input": {"INVALID_JSON": '{"x": '}},
        role="assistant",
    )
    assert found == (
        Thinking(text="hm", signature=Signature("anthropic", "S")),
        Thinking(text="hm", signature=Signature("gemini", "G:1")),
        Thinking(text="so", signature=Signature("openai", "E"), summary=True, id="rs_1"),
        Thinking(text="hm"),
        Thinking(text="", signature=Signature("anthropic", "D"), redacted=True),
        Thinking(text="", signature=Signature("openai", "E"), redacted=True),
        ToolCall(id="a", name="f", arguments='{"x":1}', extra={"caller": {"type": "c"}}),
        ToolCall(id="call_1", name="f", arguments='{"x": ', signature=Signature("gemini", "sig")),
    )
    (result,) = parts({"type": "tool_result", "tool_use_id": signed, "content": "ok"})
    assert result.call_id == "call_1"


def test_blocks_with_words_are_read_as_these_and_written_back_as_they_came() -> None:
    found = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "A",
        "content": [{"type": "text", "text": "words"}],
        "citations": {"enabled": True},
    }
    own = {
        "type": "document",
        "title": "B",
        "source": {"type": "content", "content": [{"type": "text", "text": "more"}]},
    }
    read = parts(found, own)
    assert read == (
        Text(text="A\nhttps://a.example\nwords", extra={"block": found}),
        Text(text="B\nmore", extra={"block": own}),
    )
    writer = BlockWriter(own=True)
    assert [writer.block(part, "user", "messages[0]") for part in read] == [found, own]
