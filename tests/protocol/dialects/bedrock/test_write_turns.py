"""The conversation as Converse wants it: turns, blocks, media, thoughts, tool results."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.bedrock.request.write_turns import tool_use_id
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.bedrock.calls import (
    CLAUDE,
    LLAMA,
    NOVA,
    PROFILE,
    call,
    contents,
    said,
    written,
)

DOT = [{"text": "."}]
POINT = {"cachePoint": {"type": "default"}}
PDF = Media(kind="document", mime="application/pdf", data="JVBERg==", name="report.pdf")
PNG = Media(kind="image", mime="image/png", data="iVBORw0KGgo=")
CALL = ToolCall(id="t1", name="f", arguments='{"a": 1}')
RESULT = ToolResult(call_id="t1", content=(Text(text="1"),))
USE = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}}
RESULTED = {"toolResult": {"toolUseId": "t1", "content": [{"text": "1"}]}}


def test_adjacent_turns_are_one_and_results_are_the_users() -> None:
    wanted = call(
        said("user", "a"),
        said("user", "b"),
        said("assistant", "c"),
        said("assistant", CALL),
        said("tool", RESULT),
        said("tool", ToolResult(call_id="t2", content=(), is_error=True)),
        said("user", "d"),
    )
    assert contents(wanted) == [
        ("user", [{"text": "a"}, {"text": "b"}]),
        ("assistant", [{"text": "c"}, USE]),
        (
            "user",
            [
                RESULTED,
                {"toolResult": {"toolUseId": "t2", "content": [], "status": "error"}},
                {"text": "d"},
            ],
        ),
    ]


def test_results_come_first_in_their_turn() -> None:
    wanted = call(said("assistant", CALL), said("user", "so"), said("tool", RESULT))
    assert contents(wanted)[-1] == ("user", [RESULTED, {"text": "so"}])


def test_the_user_is_first() -> None:
    assistant = said("assistant", "Hello!")
    assert contents(call(assistant), NOVA) == [("user", DOT), ("assistant", [{"text": "Hello!"}])]
    assert contents(call(assistant), CLAUDE) == [("assistant", [{"text": "Hello!"}])]
    assert contents(call(said("user", " \n"))) == [("user", DOT)]


def test_blank_text_is_left_out() -> None:
    wanted = call(
        said("user", "a", "", " \n"),
        said("assistant", "", Refusal("no"), Refusal(" ")),
        said("assistant", ""),
        said("user", "b"),
    )
    assert contents(wanted) == [
        ("user", [{"text": "a"}]),
        ("assistant", [{"text": "no"}]),
        ("user", [{"text": "b"}]),
    ]


def test_a_turn_of_nothing_goes_and_its_neighbours_are_one() -> None:
    wanted = call(
        said("user", "a"), said("assistant", Thinking(text="unsigned")), said("user", "b")
    )
    assert contents(wanted) == [("user", [{"text": "a"}, {"text": "b"}])]


def test_system_text_between_turns_is_the_users() -> None:
    system = Message(role="user", parts=(Text(text="s"),), extra={"role": "system"})
    body, dropped = written(call(said("user", "a"), system))
    assert body["messages"][0]["content"] == [{"text": "a"}, {"text": "s"}]
    assert dropped == ()


def test_what_cannot_be_said_of_messages_is_told() -> None:
    message = Message(
        role="user",
        parts=(
            Text(text="a", extra={"citations": []}),
            Opaque("anthropic", {"type": "search_result"}),
            Media(kind="image", mime="image/png", data="iVBORw0KGgo=", detail="low"),
        ),
        name="Ada",
        extra={"weight": 0},
    )
    _, dropped = written(call(message))
    assert set(dropped) == {
        "messages[0].name",
        "messages[0].extra.weight",
        "messages[0].parts[0].extra.citations",
        "messages.search_result",
        "messages[0].parts[2].detail",
    }


def test_bedrocks_own_blocks_are_given_back() -> None:
    block = {"guardContent": {"text": {"text": "x", "qualifiers": ["query"]}}}
    assert contents(call(said("user", Opaque("bedrock", block)))) == [("user", [block])]


def test_fields_of_parts_that_others_have() -> None:
    fields = {"context": "c", "citations": {"enabled": True}}
    document = Media(
        kind="document", mime="text/plain", data="AAAA", extra={**fields, "title": "t"}
    )
    image = Media(kind="image", mime="image/png", data="AAAA", extra=fields)
    caller = ToolCall(id="t", name="f", arguments="{}", extra={"caller": {}})
    body, dropped = written(call(said("user", "a", document, image), said("assistant", caller)))
    given = body["messages"][0]["content"][1]["document"]
    assert given == {
        "name": "Document 1",
        "format": "txt",
        "source": {"bytes": "AAAA"},
        **fields,
    }
    assert set(dropped) == {
        "messages[0].parts[1].extra.title",
        "messages[0].parts[2].extra.context",
        "messages[0].parts[2].extra.citations",
        "messages[1].parts[0].extra.caller",
    }


def test_blocks_of_bedrock_may_stand_beside_results() -> None:
    guarded = {"guardContent": {"text": {"text": "x"}}}
    wanted = call(said("tool", RESULT), said("user", Opaque("bedrock", guarded)))
    assert contents(wanted, LLAMA) == [("user", [RESULTED, guarded])]


def test_what_may_not_stand_beside_results_has_a_turn_of_its_own() -> None:
    wanted = call(
        said("user", "a"),
        said("assistant", CALL),
        said("tool", RESULT),
        said("user", "see", PNG),
    )
    rest = [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": PNG.data}}}]
    assert contents(wanted, CLAUDE)[2:] == [("user", [RESULTED, *rest])]
    assert contents(wanted, LLAMA)[2:] == [
        ("user", [RESULTED]),
        ("assistant", DOT),
        ("user", rest),
    ]
    with_document = call(
        said("user", "a"), said("assistant", CALL), said("tool", RESULT), said("user", PDF)
    )
    assert [role for role, _ in contents(with_document, NOVA)] == ["user", "assistant", "user"]
    assert [role for role, _ in contents(with_document, CLAUDE)][2:] == [
        "user",
        "assistant",
        "user",
    ]


def test_a_model_that_knows_no_errors_in_results() -> None:
    result = ToolResult(call_id="t", content=(Text(text="no"),), is_error=True)
    body, dropped = written(call(said("tool", result)), "us.writer.palmyra-x4-v1:0")
    assert "status" not in body["messages"][0]["content"][0]["toolResult"]
    assert dropped == ("messages[0].parts[0].is_error",)


THOUGHTS = (
    Thinking(text="signed", signature=Signature("anthropic", "SIG")),
    Thinking(text="", redacted=True, signature=Signature("anthropic", "EqQB")),
    Thinking(text="of another", signature=Signature("gemini", "SIG")),
    Thinking(text="unsigned"),
)


@pytest.mark.parametrize(("model", "given"), [(CLAUDE, True), (PROFILE, True), (NOVA, False)])
def test_thoughts_go_back_to_who_signed_them(model: str, given: bool) -> None:
    wanted = call(said("user", "a"), said("assistant", *THOUGHTS, "b"), said("user", "c"))
    body, dropped = written(wanted, model)
    hidden = base64.b64encode(b"EqQB").decode()
    thoughts = [
        {"reasoningContent": {"reasoningText": {"text": "signed", "signature": "SIG"}}},
        {"reasoningContent": {"redactedContent": hidden}},
    ]
    assert body["messages"][1]["content"] == [*(thoughts if given else []), {"text": "b"}]
    assert dropped == ()


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        ("", {}, False),
        (" ", {}, False),
        ('{"a": 1e2}', {"a": 100.0}, False),
        ('{"a": ', {"arguments": '{"a": '}, True),
        ("[1]", {"arguments": "[1]"}, True),
        ('"x"', {"arguments": '"x"'}, True),
    ],
)
def test_arguments_are_objects(arguments: str, given: dict[str, Any], told: bool) -> None:
    wanted = call(
        said("user", "a"), said("assistant", ToolCall(id="t", name="f", arguments=arguments))
    )
    body, dropped = written(wanted)
    assert body["messages"][1]["content"][0]["toolUse"]["input"] == given
    assert dropped == (("messages[1].parts[0].arguments",) if told else ())


def test_ids_of_tool_calls() -> None:
    for fits in ("toolu_01", "functions.get:0", "x" * 64):
        assert tool_use_id(fits) == fits
    for other in ("", "x" * 65, "call|1", "ü", "a\n"):
        replaced = tool_use_id(other)
        assert replaced != other
        assert tool_use_id(replaced) == replaced == tool_use_id(other)
    assert tool_use_id("a b") != tool_use_id("a  b")


def test_cache_marks() -> None:
    marked = Text(text="a", cache=CacheMark("1h"))
    wanted = call(
        said("user", marked),
        said("assistant", ToolCall(id="t1", name="f", arguments="{}", cache=CacheMark())),
        said("tool", ToolResult(call_id="t1", content=(), cache=CacheMark())),
        said("user", "b"),
    )
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    turns = contents(wanted, CLAUDE)
    assert turns[0][1] == [{"text": "a"}, hour]
    assert turns[1][1][1] == POINT
    assert turns[2][1][1:] == [POINT, {"text": "b"}]
    body, dropped = written(wanted, LLAMA)
    assert "cachePoint" not in str(body)
    assert set(dropped) == {
        "messages[0].parts[0].cache",
        "messages[1].parts[0].cache",
        "messages[2].parts[0].cache",
    }


def test_a_line_end_stands_between_a_document_and_its_cache_point() -> None:
    marked = Media(kind="document", mime="text/plain", data="AAAA", cache=CacheMark())
    ((_, blocks),) = contents(call(said("user", "a", marked)))
    assert [next(iter(block)) for block in blocks] == ["text", "document", "text", "cachePoint"]
    assert blocks[2] == {"text": "\n"}


def test_a_mark_on_blank_text_is_of_what_stands_before_it() -> None:
    blank = Text(text=" ", cache=CacheMark())
    assert contents(call(said("user", "a", blank))) == [("user", [{"text": "a"}, POINT])]
    body, dropped = written(call(said("user", blank, "a")))
    assert "cachePoint" not in str(body)
    assert dropped == ("messages[0].parts[0].cache",)


PARTS = st.sampled_from(
    (
        Text(text="a"),
        Text(text=" ", cache=CacheMark()),
        Text(text="b", cache=CacheMark("1h")),
        PNG,
        PDF,
        Media(kind="document", mime="text/csv", data="AAAA", name="a/b", cache=CacheMark()),
        CALL,
        ToolCall(id="a b", name="g", arguments="no JSON", cache=CacheMark()),
        RESULT,
        ToolResult(call_id="a b", content=(PDF, PNG), is_error=True, cache=CacheMark()),
        Thinking(text="x", signature=Signature("anthropic", "S")),
        Thinking(text="x"),
        Refusal("no"),
        Opaque("gemini", {}),
    )
)
TURNS = st.lists(
    st.builds(
        lambda role, parts: said(role, *parts),
        st.sampled_from(("user", "assistant", "tool")),
        st.lists(PARTS, max_size=4),
    ),
    max_size=6,
)
MODELS = st.sampled_from((CLAUDE, NOVA, LLAMA, PROFILE, "us.mistral.pixtral-large-2502-v1:0"))


@settings(max_examples=60, deadline=None)
@given(TURNS, MODELS)
def test_any_turns_are_the_users_and_the_assistants_by_turns(
    turns: list[Message], model: str
) -> None:
    """`written` looks at the API's own description as well."""
    body, _ = written(ChatCall(dialect="openai_chat", model="m", messages=tuple(turns)), model)
    roles = [turn["role"] for turn in body["messages"]]
    assert all(one != other for one, other in pairwise(roles))
    assert roles[0] == "user" or model == CLAUDE
    for turn in body["messages"]:
        assert turn["content"]
        kinds = [next(iter(block)) for block in turn["content"]]
        assert kinds[0] != "cachePoint"
        for before, kind in pairwise(kinds):
            assert kind != "cachePoint" or before not in ("document", "video", "cachePoint")
