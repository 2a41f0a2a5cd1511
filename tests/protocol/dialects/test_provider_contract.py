"""What providers that are alike have in common: how they are told a call, and how they fail.

What each has for itself is in its own folder.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.cohere import PROVIDER as COHERE
from headrace.protocol.dialects.mistral import PROVIDER as MISTRAL
from headrace.protocol.dialects.ollama import PROVIDER as OLLAMA
from headrace.protocol.neutral.call import ChatCall, Message, OutputFormat, Tool, ToolChoice
from headrace.protocol.neutral.dialect import EncodedRequest, ProviderSide
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.api_description import assert_as_described

pytestmark = pytest.mark.usefixtures("api_descriptions")

PNG = "iVBORw0KGgoAAAANSUhEUg=="
USER = Message(role="user", parts=(Text(text="Hi"),))
WEATHER = Tool(name="get_weather", parameters={"type": "object", "properties": {}})


class Provider(NamedTuple):
    """A provider that tests are run with."""

    name: str
    side: ProviderSide
    path: str
    streams: str
    """The content type of its streams."""
    description: str = ""
    """The file of the API's own description, where requests are held against one here."""


PROVIDERS = (
    Provider("Cohere", COHERE, "/v2/chat", "text/event-stream", "cohere/cohere-openapi.yaml"),
    Provider(
        "Mistral", MISTRAL, "/v1/chat/completions", "text/event-stream", "mistral/openapi.yaml"
    ),
    Provider("Ollama", OLLAMA, "/api/chat", "application/x-ndjson"),
)
every_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda one: one.name)
hosted_provider = pytest.mark.parametrize("provider", PROVIDERS[:2], ids=lambda one: one.name)


def call(*messages: Message, **fields: Any) -> ChatCall:
    """A call of a client of another dialect."""
    return ChatCall(dialect="openai-chat", model="m", messages=messages or (USER,), **fields)


def said(
    provider: Provider, *parts: Part, role: Any = "user", **fields: Any
) -> tuple[dict[str, Any], set[str]]:
    """A turn as it is written, and what is dropped of it. A user's turn follows."""
    written = provider.side.write_call(call(Message(role=role, parts=parts, **fields), USER), "m")
    body = json.loads(written.body)
    if provider.description:
        assert_as_described(body, provider.description, provider.path)
    return body["messages"][0], set(written.dropped)


@every_provider
def test_nothing_is_said_that_was_not_asked(provider: Provider) -> None:
    """No temperature, no top_p: a default of ours would rule out the model's own."""
    assert provider.side.write_call(call(), "a-model") == EncodedRequest(
        provider.path,
        {"content-type": "application/json", "accept": "application/json"},
        b'{"model":"a-model","messages":[{"role":"user","content":"Hi"}],"stream":false}',
    )
    streamed = provider.side.write_call(call(stream=True), "m")
    assert streamed.headers["accept"] == provider.streams


@hosted_provider
@pytest.mark.parametrize("choice", [ToolChoice("one", "sing"), ToolChoice("required")])
def test_a_choice_without_its_tool_is_refused(provider: Provider, choice: ToolChoice) -> None:
    tools = (WEATHER,) if choice.kind == "one" else ()
    with pytest.raises(RequestError, match=r"tool_choice: .* must be called") as raised:
        provider.side.write_call(call(tools=tools, tool_choice=choice), "m")
    assert raised.value.param == "tool_choice"
    auto = provider.side.write_call(call(tool_choice=ToolChoice("auto")), "m")
    assert "tool_choice" not in json.loads(auto.body)


@every_provider
def test_a_request_that_nests_too_deeply_is_refused(provider: Provider) -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"a": schema}
    with pytest.raises(RequestError, match="nested too deeply"):
        provider.side.write_call(call(output=OutputFormat(kind="schema", schema=schema)), "m")


@hosted_provider
def test_what_messages_hold_and_cannot_be_told_is_named(provider: Provider) -> None:
    message, dropped = said(
        provider,
        Text(text="a", cache=CacheMark(), extra={"annotations": []}),
        Opaque("anthropic", {"type": "search_result"}),
        Refusal("b"),
        name="Ann",
        extra={"weight": 1},
    )
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert dropped == {
        "messages.cache",
        "messages.text.annotations",
        "messages.search_result",
        "messages.name",
        "messages.extra.weight",
    }
    _, dropped = said(provider, ToolResult(call_id="c", content=(), is_error=True), role="tool")
    assert dropped == {"messages.is_error"}


@hosted_provider
def test_fields_of_parts_that_only_others_know_are_named(provider: Provider) -> None:
    called = ToolCall(id="pcZFHqej8", name="f", arguments="{}", extra={"caller": {}})
    assert said(provider, called, role="assistant")[1] == {"messages.tool_calls.caller"}
    image = Media(kind="image", data=PNG, extra={"context": "c"})
    assert said(provider, image)[1] == {"messages.media.context"}


@hosted_provider
@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_between_turns_are_the_systems(provider: Provider, role: str) -> None:
    message, dropped = said(provider, Text(text="Now in French."), extra={"role": role})
    assert message == {"role": "system", "content": "Now in French."}
    assert dropped == set()


@every_provider
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"[1]",
        b"{}",
        b'{"error":5}',
        b'{"message": 5}',
        b"\xff",
        b"[" * 9999,
        b"[" * 10**5,
    ],
    ids=range(10),
)
def test_any_body_is_a_failure(provider: Provider, body: bytes) -> None:
    failure = provider.side.read_failure(502, {}, body)
    assert failure.kind == "server"
    assert failure.message == f"{provider.name} answered with status 502"


@every_provider
def test_a_message_is_no_book(provider: Provider) -> None:
    field = "error" if provider.name == "Ollama" else "message"
    body = json.dumps({field: "a" * 10**6}).encode()
    assert len(provider.side.read_failure(400, {}, body).message) == 2000


@every_provider
def test_a_failure_says_when_to_come_back(provider: Provider) -> None:
    def retry_after_s(**headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return provider.side.read_failure(429, named, b"").retry_after_s

    assert retry_after_s(Retry_After="2") == 2.0
    assert retry_after_s(retry_after_ms="1500") == 1.5
    # In milliseconds it is more exact than a date.
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert retry_after_s(retry_after=date, retry_after_ms="250") == 0.25
    for value in ("-1", "nan", "inf", "soon", date):
        assert retry_after_s(retry_after=value) is None
