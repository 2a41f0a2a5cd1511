"""A conversation as Cohere is told it, and what of it cannot be told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    Message,
)
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
from tests.protocol.dialects.cohere.samples import call, written

pytestmark = pytest.mark.usefixtures("api_descriptions")

PNG = "iVBORw0KGgoAAAANSUhEUg=="


def dropped(asked: ChatCall) -> set[str]:
    return set(PROVIDER.write_call(asked, "command-a").dropped)


def said(*parts: Part, role: Any = "user", **fields: Any) -> tuple[list[dict[str, Any]], set[str]]:
    asked = call(messages=(Message(role=role, parts=parts, **fields),))
    return written(asked)["messages"], dropped(asked)


def test_a_tool_call_and_its_results_keep_their_ids() -> None:
    asked = call(
        messages=(
            Message(
                role="assistant",
                parts=(
                    Thinking(text="Hm."),
                    Text(text="I will look."),
                    ToolCall(id="call_A", name="get_weather", arguments='{"city": "Oslo"}'),
                    ToolCall(id="call_B", name="get_time", arguments=""),
                ),
            ),
            Message(
                role="tool",
                parts=(
                    ToolResult(call_id="call_A", name="get_weather", content=(Text(text="Rain"),)),
                    ToolResult(call_id="call_B", content=(Text(text="4"), Text(text="pm"))),
                ),
            ),
        )
    )
    body = written(asked)
    assert body["messages"] == [
        {
            "role": "assistant",
            "tool_plan": "I will look.",
            "content": [{"type": "thinking", "thinking": "Hm."}],
            "tool_calls": [
                {
                    "id": "call_A",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                },
                {
                    "id": "call_B",
                    "type": "function",
                    "function": {"name": "get_time", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_A", "content": "Rain"},
        {
            "role": "tool",
            "tool_call_id": "call_B",
            "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "pm"}],
        },
    ]
    assert dropped(asked) == set()
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")


def test_thoughts_of_others_stay_away() -> None:
    messages, told = said(
        Thinking(text="theirs", signature=Signature("anthropic", "x")),
        Thinking(text="", signature=Signature("openai", "y"), redacted=True),
        Text(text="Yes."),
        role="assistant",
    )
    assert messages == [{"role": "assistant", "content": "Yes."}]
    assert told == set()


def test_images() -> None:
    messages, told = said(
        Text(text="What is it?"),
        Media(kind="image", data=PNG, detail="low"),
        Media(kind="image", url="https://example.com/a.png"),
    )
    assert messages[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"},
        },
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    assert told == set()
    body = {"model": "m", "messages": messages}
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")


def test_documents_of_text_lie_beside_the_messages() -> None:
    data = base64.b64encode("Zürich".encode()).decode()
    document = Media(kind="document", mime="text/plain", data=data, name="a.txt")
    asked = call(
        messages=(Message(role="user", parts=(Text(text="Sum up."), document)),),
        extra={"documents": ["first"]},
    )
    body = written(asked)
    assert body["documents"] == ["first", {"data": {"content": "Zürich", "title": "a.txt"}}]
    assert body["messages"] == [{"role": "user", "content": "Sum up."}]
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")
    messages, _ = said(ToolResult(call_id="c", content=(document,)), role="tool")
    assert messages[0]["content"] == [
        {"type": "document", "document": {"data": {"content": "Zürich", "title": "a.txt"}}}
    ]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (Media(kind="audio", data="AAAA"), "Cohere accepts only images"),
        (Media(kind="document", mime="application/pdf", data="AAAA"), "text documents"),
        (Media(kind="document", mime="text/plain", url="https://a.b"), "does not fetch documents"),
        (Media(kind="document", mime="text/plain", data="_"), "not base64"),
        (Media(kind="image", file_id="f"), "file id"),
        (Media(kind="image", data="AAAA"), "its type is missing"),
        (ToolResult(call_id="c", content=(Media(kind="image", data=PNG),)), "results of tools"),
    ],
)
def test_media_that_cohere_does_not_take_is_refused(part: Part, why: str) -> None:
    with pytest.raises(RequestError, match=why) as raised:
        said(part)
    assert raised.value.param == "messages[0]"


def test_images_of_the_assistant_are_named() -> None:
    _, told = said(Media(kind="image", data=PNG), role="assistant")
    assert told == {"messages.image"}


def test_citations_and_a_plan_may_be_given_back() -> None:
    citations = [{"start": 0, "end": 1, "text": "a"}]
    messages, told = said(
        Text(text="a"),
        ToolCall(id="1", name="f", arguments="{}"),
        role="assistant",
        extra={"citations": citations, "tool_plan": "plan"},
    )
    assert messages[0]["citations"] == citations
    assert messages[0]["tool_plan"] == "plan"
    assert messages[0]["content"] == "a"
    assert told == set()
