"""A conversation as Mistral is told it, and what of it cannot be told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.dialects.mistral.request.write_messages import provider_id
from headrace.protocol.neutral.call import Message
from headrace.protocol.neutral.part import (
    Media,
    Part,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.mistral.samples import call, reply, written

pytestmark = pytest.mark.usefixtures("api_descriptions")

PNG = "iVBORw0KGgoAAAANSUhEUg=="
USER = Message(role="user", parts=(Text(text="Go on."),))


def said(*parts: Part, role: Any = "user", **fields: Any) -> tuple[dict[str, Any], set[str]]:
    """The turn as written, with a user's turn after it, and what was dropped."""
    asked = call(messages=(Message(role=role, parts=parts, **fields), USER))
    body = written(asked)
    assert_as_described(body, "mistral/openapi.yaml", "/v1/chat/completions")
    return body["messages"][0], set(PROVIDER.write_call(asked, "m").dropped)


def test_ids_of_tool_calls_are_nine_letters_and_digits() -> None:
    assert provider_id("pcZFHqej8") == "pcZFHqej8"
    for id in ("", "call_abc", "toolu_01A09q90qw90lq917835lq9", "pcZFHqej-", "äöüäöüäöü", "\ud800"):
        made = provider_id(id)
        assert len(made) == 9 and made.isascii() and made.isalnum()
        assert made == provider_id(id)
    made_all = {provider_id(f"call_{number}") for number in range(2000)}
    assert len(made_all) == 2000


def test_a_call_and_its_result_have_the_same_id() -> None:
    asked = call(
        messages=(
            Message(
                role="assistant",
                parts=(
                    Text(text="I will look."),
                    ToolCall(id="toolu_1", name="f", arguments='{"a": 1}'),
                    ToolCall(id="pcZFHqej8", name="g", arguments=""),
                ),
            ),
            Message(
                role="tool",
                parts=(
                    ToolResult(call_id="toolu_1", name="f", content=(Text(text="4"),)),
                    ToolResult(call_id="pcZFHqej8", content=()),
                ),
            ),
        )
    )
    first = provider_id("toolu_1")
    body = written(asked)
    assert body["messages"] == [
        {
            "role": "assistant",
            "content": "I will look.",
            "tool_calls": [
                {
                    "id": first,
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a": 1}'},
                    "index": 0,
                },
                {
                    "id": "pcZFHqej8",
                    "type": "function",
                    "function": {"name": "g", "arguments": "{}"},
                    "index": 1,
                },
            ],
        },
        {"role": "tool", "tool_call_id": first, "name": "f", "content": "4"},
        {"role": "tool", "tool_call_id": "pcZFHqej8", "content": ""},
    ]
    assert_as_described(body, "mistral/openapi.yaml", "/v1/chat/completions")


def test_the_assistant_speaks_between_a_tool_and_a_user() -> None:
    result = ToolResult(call_id="pcZFHqej8", content=(Text(text="4"),))
    asked = call(messages=(Message(role="tool", parts=(result,)), USER))
    assert [one["role"] for one in written(asked)["messages"]] == ["tool", "assistant", "user"]
    mixed = call(messages=(Message(role="user", parts=(result, Text(text="Well?"))),))
    assert written(mixed)["messages"] == [
        {"role": "tool", "tool_call_id": "pcZFHqej8", "content": "4"},
        {"role": "assistant", "content": "OK."},
        {"role": "user", "content": "Well?"},
    ]


def test_the_last_turn_of_the_assistant_is_a_prefix() -> None:
    turn = Message(role="assistant", parts=(Text(text="{"),))
    messages = written(call(messages=(USER, turn)))["messages"]
    assert messages[-1] == {"role": "assistant", "content": "{", "prefix": True}
    told = Message(role="assistant", parts=(Text(text="{"),), extra={"prefix": False})
    assert written(call(messages=(USER, told)))["messages"][-1]["prefix"] is False
    assert "prefix" not in written(call(messages=(turn, USER)))["messages"][0]
    message, dropped = said(Text(text="a"), role="assistant", extra={"prefix": "yes"})
    assert "prefix" not in message and dropped == {"messages.extra.prefix"}


def test_thoughts_come_back_with_their_signature() -> None:
    """What a reply held is what the next request holds."""
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "signature": "s1"},
        {"type": "reference", "reference_ids": [1, 2]},
        {"type": "text", "text": "Yes."},
    ]
    parts = PROVIDER.read_reply(reply({"content": content})).choices[0].parts
    asked = call(messages=(Message(role="assistant", parts=parts), USER))
    assert written(asked)["messages"][0] == {"role": "assistant", "content": content}


def test_unsigned_thoughts_are_told_and_those_of_others_stay_away() -> None:
    message, dropped = said(
        Thinking(text="mine"),
        Thinking(text="theirs", signature=Signature("anthropic", "x")),
        Thinking(text="", signature=Signature("openai", "y"), redacted=True),
        Text(text="Yes."),
        role="assistant",
    )
    assert message["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "mine"}]},
        {"type": "text", "text": "Yes."},
    ]
    assert dropped == set()


def test_media() -> None:
    data = base64.b64encode("Zürich".encode()).decode()
    message, dropped = said(
        Text(text="What is it?"),
        Media(kind="image", data=PNG, detail="low"),
        Media(kind="image", url="https://example.com/a.png"),
        Media(kind="document", url="https://example.com/a.pdf", name="a.pdf"),
        Media(kind="document", mime="application/pdf", data="JVBERi0="),
        Media(kind="document", mime="text/plain", data=data, name="a.txt"),
        Media(kind="document", file_id="7d4ef1a4-4a52-4e33-8e0b-5a4ad2e0f8a8"),
        Media(kind="audio", mime="audio/mp3", data="AAAA"),
        Media(kind="audio", url="https://example.com/a.mp3"),
    )
    assert message["content"] == [
        {"type": "text", "text": "What is it?"},
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"},
        },
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {
            "type": "document_url",
            "document_url": "https://example.com/a.pdf",
            "document_name": "a.pdf",
        },
        {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERi0="},
        {"type": "text", "text": "a.txt:\nZürich"},
        {"type": "file", "file_id": "7d4ef1a4-4a52-4e33-8e0b-5a4ad2e0f8a8"},
        {"type": "input_audio", "input_audio": "AAAA"},
        {"type": "input_audio", "input_audio": "https://example.com/a.mp3"},
    ]
    assert dropped == set()


def test_an_image_may_come_of_a_tool() -> None:
    image = Media(kind="image", data=PNG)
    message, _ = said(ToolResult(call_id="pcZFHqej8", content=(image,)), role="tool")
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    ]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Media(kind="video", url="https://a.b"), "not accept video"),
        (Media(kind="image", data="AAAA"), "its type is missing"),
        (Media(kind="document", mime="text/plain", data="_"), "not base64"),
    ],
)
def test_media_that_mistral_does_not_take_is_refused(part: Part, why: str) -> None:
    with pytest.raises(RequestError, match=why) as raised:
        said(part)
    assert raised.value.param == "messages[0]"


def test_references_come_back_where_they_stood() -> None:
    content = [
        {"type": "text", "text": "One"},
        {"type": "reference", "reference_ids": [1, 2]},
        {"type": "text", "text": " two"},
        {"type": "reference", "reference_ids": [0]},
        {"type": "text", "text": "."},
    ]
    parts = PROVIDER.read_reply(reply({"content": content})).choices[0].parts
    assert len(parts) == 1
    asked = call(messages=(Message(role="assistant", parts=parts), USER))
    assert written(asked)["messages"][0] == {"role": "assistant", "content": content}
