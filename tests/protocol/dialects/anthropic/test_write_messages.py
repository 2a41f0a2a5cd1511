"""Turns of other dialects as messages of this one."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    Message,
    Tool,
)
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.anthropic.written_calls import (
    HI,
    MODEL,
    assistant,
    results,
    text,
    user,
    written,
)


def test_turns_of_one_role_are_merged_and_results_come_first() -> None:
    body, dropped = written(
        user("a"),
        user("b"),
        assistant("c", ToolCall(id="1", name="f", arguments='{"x": 1}')),
        assistant(ToolCall(id="2", name="f", arguments="")),
        user("between"),
        results(ToolResult(call_id="1", content=(Text(text="one"),))),
        results(ToolResult(call_id="2", content=(), is_error=True)),
    )
    assert body["messages"] == [
        {"role": "user", "content": [text("a"), text("b")]},
        {
            "role": "assistant",
            "content": [
                text("c"),
                {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "2", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [text("one")]},
                {"type": "tool_result", "tool_use_id": "2", "is_error": True},
                text("between"),
            ],
        },
    ]
    assert dropped == ()


def test_turns_the_api_would_refuse_are_mended() -> None:
    body, _ = written(assistant("a"), user(""), assistant(" "), user("b"), assistant("c \n"))
    assert body["messages"] == [
        {"role": "user", "content": [text(".")]},
        {"role": "assistant", "content": [text("a")]},
        {"role": "user", "content": [text("."), text("b")]},
        {"role": "assistant", "content": [text("c")]},
    ]


def test_a_call_of_its_own_is_left_as_it_is() -> None:
    body, _ = written(assistant("a "), user(" "), user("b"), assistant("c "), dialect="anthropic")
    assert body["messages"] == [
        {"role": "assistant", "content": [text("a ")]},
        {"role": "user", "content": [text(" "), text("b")]},
        {"role": "assistant", "content": [text("c ")]},
    ]


def test_nothing_to_say_is_refused() -> None:
    with pytest.raises(RequestError, match="nothing is left"):
        PROVIDER.write_call(ChatCall(dialect="openai_chat", model="m", messages=()), MODEL)


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('{"a": ', {"INVALID_JSON": '{"a": '}),
        ("[1]", {"INVALID_JSON": "[1]"}),
        ("NaN", {"INVALID_JSON": "NaN"}),
        ("[" * 100_000, {"INVALID_JSON": "[" * 100_000}),
    ],
    ids=["object", "empty", "space", "null", "cut", "list", "nan", "deep"],
)
def test_arguments(arguments: str, input: dict[str, Any]) -> None:
    call = ToolCall(id="1", name="f", arguments=arguments)
    body, _ = written(*HI, assistant(call), results(ToolResult(call_id="1", content=())))
    assert body["messages"][1]["content"][0]["input"] == input


def test_arguments_go_on_as_the_model_wrote_them() -> None:
    raw = '{"n": 1.50, "big": 123456789012345678901234567890, "s": "\\u00e4"}'
    call = ToolCall(id="1", name="f", arguments=raw)
    out = PROVIDER.write_call(
        ChatCall(dialect="openai_chat", model="m", messages=(*HI, assistant(call))), MODEL
    )
    assert raw.encode() in out.body


def test_ids_of_other_vendors_are_made_fit() -> None:
    calls = [ToolCall(id=one, name="f", arguments="") for one in ("call_1", "f.a:0", "f_a:0")]
    answers = [ToolResult(call_id=one.id, content=()) for one in calls]
    body, _ = written(*HI, assistant(*calls), results(*answers))
    asked = [one["id"] for one in body["messages"][1]["content"]]
    assert asked == [one["tool_use_id"] for one in body["messages"][2]["content"]]
    assert asked[0] == "call_1"
    assert len(set(asked)) == 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in asked)


def test_thoughts_go_to_their_origin_alone() -> None:
    body, dropped = written(
        *HI,
        assistant(
            Thinking(text="a", signature=Signature("anthropic", "S")),
            Thinking(text="b", signature=Signature("gemini", "S")),
            Thinking(text="c"),
            Thinking(text="", signature=Signature("anthropic", "D"), redacted=True),
            Thinking(text="", signature=Signature("openai", "D"), redacted=True),
            "d",
        ),
        assistant(Thinking(text="c")),
        user("e"),
    )
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "a", "signature": "S"},
        {"type": "redacted_thinking", "data": "D"},
        text("d"),
    ]
    assert dropped == ()


def test_media() -> None:
    plain = b64encode("Grüße".encode()).decode()
    body, dropped = written(
        user(
            Media(kind="image", mime="image/png", data="AA==", detail="auto"),
            Media(kind="image", data="/9j/AA=="),
            Media(kind="image", url="https://a", detail="high"),
            Media(kind="document", mime="application/pdf", data="JVBERi0=", name="a.pdf"),
            Media(kind="document", mime="text/markdown; charset=utf-8", data=plain),
        )
    )
    assert body["messages"][0]["content"] == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
        },
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/AA=="},
        },
        {"type": "image", "source": {"type": "url", "url": "https://a"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "a.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
        },
    ]
    assert dropped == ("messages.detail",)


@pytest.mark.parametrize(
    "media",
    [
        Media(kind="audio", mime="audio/wav", data="AA=="),
        Media(kind="video", url="https://a"),
        Media(kind="image", mime="image/tiff", data="AA=="),
        Media(kind="document", mime="application/msword", data="AA=="),
        Media(kind="document", mime="text/plain", data="////"),
        Media(kind="document", file_id="file-openai"),
    ],
    ids=["audio", "video", "tiff", "word", "latin", "file"],
)
def test_media_the_api_cannot_take_is_refused(media: Media) -> None:
    with pytest.raises(RequestError) as caught:
        written(user(media))
    assert caught.value.param == "messages[0].parts[0]"


def test_pictures_of_the_models_own_are_dropped_and_told() -> None:
    picture = Media(kind="image", mime="image/png", data="AA==")
    body, dropped = written(*HI, assistant("here", picture), user("more"))
    assert body["messages"][1]["content"] == [text("here")]
    assert dropped == ("messages.image",)


def test_files_of_its_own_need_a_beta() -> None:
    call = ChatCall(
        dialect="anthropic",
        model="m",
        messages=(user(Media(kind="image", file_id="file_1")),),
        extra={"betas": ["x-2025-01-01"]},
    )
    out = PROVIDER.write_call(call, MODEL)
    assert out.headers["anthropic-beta"] == "x-2025-01-01,files-api-2025-04-14"


def test_opaque_parts_go_to_their_dialect_alone() -> None:
    ours = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    body, dropped = written(
        *HI,
        assistant(Opaque("anthropic", ours), Opaque("gemini", {"executableCode": {}}), "a"),
        user(Refusal("no")),
    )
    assert body["messages"][1]["content"] == [ours, text("a")]
    assert body["messages"][2]["content"] == [text("no")]
    assert dropped == ("messages.assistant.gemini",)


def test_a_result_block_without_a_neutral_form_comes_back() -> None:
    block = {"type": "tool_reference", "tool_name": "f"}
    part = ToolResult(call_id="1", content=(Text(text="f", extra={"block": block}),))
    body, _ = written(*HI, results(part), dialect="anthropic")
    assert body["messages"][0]["content"][1]["content"] == [block]
    body, dropped = written(*HI, results(part))
    assert body["messages"][0]["content"][0]["content"] == [text("f")]
    assert dropped == ("messages.extra.block",)


def _system(words: str) -> Message:
    return user(words, extra={"role": "system"})


def test_system_text_between_turns_where_the_model_takes_it() -> None:
    body, dropped = written(
        user("a"), assistant("b"), _system("s"), user("c"), assistant("d"), model="claude-opus-4-8"
    )
    assert [(one["role"], one["content"][0]["text"]) for one in body["messages"]] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("system", "s"),
        ("assistant", "d"),
    ]
    assert dropped == ()


def test_system_text_between_turns_where_it_does_not() -> None:
    body, dropped = written(user("a"), assistant("b"), _system("s"), user("c"))
    assert body["messages"][2]["content"] == [text("<system>s</system>"), text("c")]
    assert dropped == ("messages.system",)


def test_fields_of_other_dialects_are_told() -> None:
    body, dropped = written(
        user(Text(text="a", extra={"b": 1}), extra={"c": 1}),
        assistant(ToolCall(id="1", name="f", arguments="", extra={"d": 1})),
        user(Media(kind="image", url="https://a", extra={"e": 1})),
        tools=(Tool(name="f", extra={"g": 1}),),
    )
    assert body["messages"][0] == {"role": "user", "content": [text("a")]}
    assert dropped == (
        "messages.extra.b",
        "messages.extra.c",
        "messages.extra.d",
        "messages.extra.e",
        "tools.extra.g",
    )
