"""Texts where nobody would look for them, which guardrails see all the same."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.gateway.guards.action import Action, GuardBlockedError
from headrace.gateway.guards.guard import Finder, Guard, Subject
from headrace.gateway.guards.patterns import Patterns
from headrace.gateway.guards.personal_data import PersonalData
from headrace.gateway.guards.reply import guarded_reply
from headrace.gateway.guards.request import looked_at
from headrace.gateway.guards.stream import StreamGuards
from headrace.gateway.guards.text_span import EMBEDDINGS, MOST_TEXTS
from headrace.protocol.json_object import JsonObject

WORD = Patterns((r"\bsecret[0-9]{3}", r"4111111111111111"), "[X]", 16)
CHAT, RESPONSES = "openai-chat", "openai-responses"


def guard(action: Action, finder: Finder = WORD) -> Guard:
    return Guard(name="g", on=frozenset(("input", "output")), action=action, finder=finder)


async def asked(dialect: str, body: Any, action: Action, finder: Finder = WORD) -> bytes:
    """The body as it goes on."""
    read = JsonObject.read(json.dumps(body).encode())
    subject = Subject(on="input", passages=(), dialect=dialect)
    return (await looked_at([guard(action, finder)], subject, read)).body.body


def said(*content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": one} for one in content]}


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}


def used(given: Any) -> dict[str, Any]:
    return said([{"type": "tool_use", "id": "a", "name": "f", "input": given}])


def tool(**more: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **more}}]}


def parameter(name: str, **schema: Any) -> dict[str, Any]:
    return tool(parameters={"type": "object", "properties": {name: schema}})


HIDDEN: list[tuple[str, dict[str, Any]]] = [
    (CHAT, said("data: secret123")),
    ("anthropic", {"system": "data:secret123", **said("x")}),
    ("openai-completions", {"prompt": "data: secret123"}),
    (RESPONSES, {"input": [{"role": "user", "content": [
        {"type": "input_text", "text": "data: secret123"}]}]}),
    ("ollama", said("data: secret123")),
    ("ollama-generate", {"system": "data: secret123"}),
    ("ollama-generate", {"template": "secret123"}),
    (EMBEDDINGS, {"input": ["data: secret123"]}),
    (CHAT, said([{"type": "image_url", "image_url": {"url": "data:text/plain,secret123"}}])),
    (CHAT, tool(description="secret123")),
    (CHAT, parameter("name", description="secret123")),
    (CHAT, parameter("headers", enum=["secret123"])),
    *((CHAT, tool(parameters={under: {"name": {"description": "secret123"}}}))
      for under in ("$defs", "definitions", "patternProperties", "dependentSchemas")),
    (CHAT, tool(parameters={"$defs": {"model": {"$defs": {"id": {"const": "secret123"}}}}})),
    (CHAT, tool(parameters={"dependentRequired": {"format": ["secret123"]}})),
    (CHAT, parameter("properties", enum=[4111111111111111])),
    (CHAT, {"functions": [{"name": "f", "description": "secret123"}]}),
    ("anthropic", {"tools": [{"name": "f", "description": "secret123"}]}),
    (RESPONSES, {"tools": [{"type": "function", "name": "f", "description": "secret123"}]}),
    ("ollama", tool(description="secret123")),
    (CHAT, {"response_format": {"type": "json_schema", "json_schema": {
        "name": "s", "description": "secret123", "schema": {"type": "object"}}}}),
    (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "s",
                                     "description": "secret123"}}}),
    (CHAT, {"stop": ["secret123"]}),
    ("anthropic", {"stop_sequences": ["secret123"]}),
    ("ollama", {"options": {"stop": ["secret123"]}}),
    (CHAT, {"messages": [{"role": "user", "name": "secret123", "content": "x"}]}),
    ("anthropic", used({"card": 4111111111111111})),
    ("anthropic", used({"card": 4111111111111111.0})),
    ("anthropic", used({"secret123": 1})),
    (CHAT, called('{"a": "\\u0073ecret123"}')),
    (CHAT, called('{"\\u0073ecret123": 2}')),
    (CHAT, called('{"a":"line\\nsecret123"}')),
    (CHAT, called('{"card": 4111111111111111, "x": 1.0e2}')),
    (CHAT, said([{"type": "text", "text": "a secr"}, {"type": "text", "text": "et123 b"}])),
    (CHAT, said([{"type": "text", "text": "secr"}, {"type": "text", "text": ""},
                 {"type": "text", "text": "et123"}])),
    (CHAT, said([{"type": "text", "text": "x"}, {"type": "text", "text": "secret123"}])),
    *((CHAT, {name: value, **said("x")}) for name, value in (
        ("chat_template", "secret123"), ("chat_template_kwargs", {"secret123": "x"}),
        ("chat_template_kwargs", {"name": "secret123"}), ("documents", [{"text": "secret123"}]),
        ("guided_regex", "secret123"), ("guided_choice", ["secret123"]), ("grammar", "secret123"),
        ("system", "secret123"), ("prompt", "secret123"), ("extra_body", {"id": "secret123"}),
        ("plugins", [{"id": "web", "search_prompt": "secret123"}]))),
    ("anthropic", {"context_management": {"edits": [{"instructions": "secret123"}]}, **said("x")}),
    ("anthropic", {"container": {"skills": ["secret123"]}, **said("x")}),
    (EMBEDDINGS, {"input": ["x"], "instruction": "secret123"}),
    ("anthropic", {"system": [{"type": "text", "text": "secr"}, {"type": "text", "text": "et123"}],
                   **said("x")}),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body"), HIDDEN)
async def test_every_text_of_a_request_is_looked_at(dialect: str, body: dict[str, Any]) -> None:
    with pytest.raises(GuardBlockedError):
        await asked(dialect, body, "block")
    left = await asked(dialect, body, "redact")
    assert b"[X]" in left
    for part in (b"secret123", b"u0073ecret123", b"et123", b"4111111111111111"):
        assert part not in left
    for message in json.loads(left).get("messages", ()):
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


async def test_a_card_as_a_number_is_personal_data() -> None:
    cards = PersonalData(("credit_card",), 16)
    left = await asked("anthropic", used({"card": 4111111111111111, "n": 7}), "redact", cards)
    (part,) = json.loads(left)["messages"][0]["content"]
    assert part["input"] == {"card": "[CREDIT_CARD]", "n": 7}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (CHAT, said("secr", "et123")),
        (EMBEDDINGS, {"input": ["secr", "et123"]}),
        (CHAT, said([{"type": "image_url",
                      "image_url": {"url": "data:image/png;base64,xxsecret123"}}])),
        (CHAT, called('{"a": "\\u00e4", "b": [1.50, true]}')),
        ("anthropic", used({"a": [1.5, None, True]})),
        (CHAT, tool(description="a", parameters={"type": "object"})),
        (CHAT, {"user": "secret123", "metadata": {"a": "secret123"}, **said("x")}),
        ("ollama-generate", {"prompt": "x", "images": ["secret123"], "format": "secret123"}),
    ],
)  # fmt: skip
async def test_what_has_none_goes_on_byte_for_byte(dialect: str, body: dict[str, Any]) -> None:
    for action in ("block", "redact"):
        assert await asked(dialect, body, action) == json.dumps(body).encode()


async def test_arguments_keep_their_other_bytes_and_stay_json() -> None:
    left = await asked(CHAT, called('{ "a" :"\\u0073ecret123","x": 1.0e2}'), "redact")
    (message,) = json.loads(left)["messages"]
    (call,) = message["tool_calls"]
    assert call["function"]["arguments"] == '{ "a" :"[X]","x": 1.0e2}'
    across = Patterns(('"password": "[a-z]+"}',), "[X]", 16)
    left = await asked(CHAT, called('{"password": "abc"}'), "redact", across)
    (message,) = json.loads(left)["messages"]
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


async def answered(body: bytes, action: Action) -> bytes:
    subject = Subject(on="output", passages=(), dialect=CHAT)
    return await guarded_reply([guard(action)], subject, body, [].append)


async def streamed(event: bytes, action: Action) -> bytes:
    subject = Subject(on="output", passages=(), dialect=CHAT)
    passing = StreamGuards([guard(action)], subject, [].append)
    return passing.feed(b"data: " + event + b"\n\n") + await passing.end()


@pytest.mark.parametrize("field", ["content", "name"])
async def test_texts_of_answers_that_begin_with_data_and_names_are_seen(field: str) -> None:
    message = {"role": "assistant", field: "data: secret123"}
    whole = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
    event = json.dumps({"choices": [{"index": 0, "delta": {field: "data: secret123"}}]}).encode()
    with pytest.raises(GuardBlockedError):
        await answered(whole, "block")
    with pytest.raises(GuardBlockedError):
        await streamed(event, "block")
    assert b"data: [X]" in await answered(whole, "redact")
    assert b"data: [X]" in await streamed(event, "redact")


async def test_log_probabilities_do_not_go_past_guardrails_that_hold_texts() -> None:
    tokens = {"content": [{"token": "secret123", "top_logprobs": []}]}
    choice = {"index": 0, "message": {"content": "fine"}, "logprobs": tokens}
    whole = json.dumps({"choices": [choice]}).encode()
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": "fine"},
                                     "logprobs": tokens}]}).encode()  # fmt: skip
    for action in ("block", "redact"):
        for left in (await answered(whole, action), await streamed(event, action)):
            assert b"secret123" not in left and b'"logprobs": null' in left and b"fine" in left
    assert await answered(whole, "warn") == whole
    assert await streamed(event, "warn") == b"data: " + event + b"\n\n"


async def test_answers_with_a_name_twice_do_not_pass() -> None:
    twice = b'{"content":"secret123","content":"x"}'
    with pytest.raises(GuardBlockedError, match="damaged"):
        await answered(b'{"choices":[{"index":0,"message":' + twice + b"}]}", "redact")
    assert await streamed(b'{"choices":[{"index":0,"delta":' + twice + b"}]}", "redact") == b""


async def test_a_request_with_a_name_twice_is_refused() -> None:
    read = JsonObject.read(b'{"messages":[{"role":"user","content":"secret123","content":"x"}]}')
    with pytest.raises(RequestError, match="twice"):
        await looked_at([guard("block")], Subject(on="input", passages=(), dialect=CHAT), read)


async def test_a_request_that_is_nested_too_deep_is_refused() -> None:
    text: Any = "x"
    for _ in range(200):
        text = [text]
    with pytest.raises(RequestError, match="128 levels"):
        await asked(CHAT, said(text), "block")


@pytest.mark.long
async def test_a_request_of_too_many_texts_is_refused() -> None:
    numbers = used({"values": [1] * (MOST_TEXTS + 1)})
    texts = {"stop": ["a"] * (MOST_TEXTS + 1)}
    for dialect, body in (("anthropic", numbers), ("openai-chat", texts)):
        with pytest.raises(RequestError, match="262,144 texts and numbers"):
            await asked(dialect, body, "block")
    # Ids of tokens are none, however many there are.
    ids = {"prompt": [1] * (MOST_TEXTS + 1)}
    assert await asked("openai-completions", ids, "block")


async def test_a_long_request_is_read_beside_the_others() -> None:
    parts = ["x" * 100] * 3000 + ["secret123"]
    long = said([{"type": "text", "text": one} for one in parts])
    assert b"[X]" in await asked(CHAT, long, "redact")
    told = asyncio.ensure_future(asked(CHAT, long, "redact"))
    turns = 0
    while not told.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20, "others have their turns while it is read"
