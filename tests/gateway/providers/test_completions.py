"""OpenAI's older completions: passed on where a provider has them, else asked as a chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.clients.over_socket import listening
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import DONE, END, STREAM_HEAD, USAGE, answers, framed, reply
from tests.gateway.upstream.scripted import Scripted, served

PRICE = {"input": 1.0, "output": 2.0}
PATH = "/v1/completions"


def completion(text: str, model: str) -> dict[str, Any]:
    return {
        "id": "cmpl-1", "object": "text_completion", "created": 7, "model": model,
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": "length"}],
        "usage": USAGE, "x_new_field": {"kept": [1, 2.50]},
    }  # fmt: skip


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
    value = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m",
             "choices": [choice]}  # fmt: skip
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def usage_event() -> bytes:
    value = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m",
             "choices": [], "usage": USAGE}  # fmt: skip
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def path_of(request: bytes) -> str:
    return request.split(b" ")[1].decode()


def body_of(request: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return found


async def both(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    """A server with both APIs."""
    if path_of(request) != PATH:
        await answers("from chat")(number, request, writer)
        return
    asked = body_of(request)
    if not asked.get("stream"):
        writer.write(reply(200, completion("from text", asked["model"])))
        return
    writer.write(STREAM_HEAD)
    for piece in ("from", " ", "text"):
        writer.write(framed(event(piece)))
    writer.write(framed(event("", "length")) + framed(usage_event()) + framed(DONE) + END)


def settings(provider: Scripted, *, has: bool, **more: Any) -> dict[str, Any]:
    return {
        "providers": {"a": {"base_url": f"{provider.origin}/v1", "completions": has}},
        "models": {"text": {"targets": [{"model": "a/m", "price": PRICE}]}},
        "retries": {"attempts": 1},
        **more,
    }


async def test_a_body_is_passed_on_but_for_the_model() -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        built = gateway(settings(provider, has=True), entries)
        raw = b'{ "model" : "text","x": 1.0e2, "prompt": [[1,2],[3]], "echo":true, "logprobs":3}'
        for path in (PATH, "/api/v1/completions"):
            told = await ask(built.app, raw, path=path)
            assert told.status == 200 and told.json == completion("from text", "m")
        built.close()
        for request in provider.requests:
            assert path_of(request) == PATH
            assert request.partition(b"\r\n\r\n")[2] == raw.replace(b'"text"', b'"m"')
    for entry in entries:
        assert (entry.dialect, entry.operation) == ("openai-completions", "text_completion")
        assert entry.cost_nusd == 18_000 and entry.finish == "length"


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_a_stream_is_passed_on_and_billed(wants_usage: bool) -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        built = gateway(settings(provider, has=True), entries)
        body: dict[str, Any] = {"model": "text", "prompt": "Hi", "stream": True}
        if wants_usage:
            body["stream_options"] = {"include_usage": True}
        told = await ask(built.app, body, path=PATH)
        built.close()
        assert body_of(provider.requests[0])["stream_options"] == {"include_usage": True}
    expected = [event("from"), event(" "), event("text"), event("", "length")]
    expected += [usage_event()] if wants_usage else []
    assert told.body == b"".join((*expected, DONE))
    assert entries[0].cost_nusd == 18_000 and entries[0].usage_from == "provider"


@pytest.mark.parametrize("stream", [False, True])
async def test_one_text_is_asked_as_a_chat_where_there_is_nothing_else(stream: bool) -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        built = gateway(settings(provider, has=False), entries)
        body = {"model": "text", "prompt": ["Once"], "max_tokens": 5, "stop": "x", "stream": stream}
        told = await ask(built.app, body, path=PATH)
        built.close()
        request = provider.requests[0]
    assert path_of(request) == "/v1/chat/completions"
    sent = body_of(request)
    assert sent["messages"] == [{"role": "user", "content": "Once"}]
    assert (sent["max_tokens"], sent["stop"]) == (5, ["x"])
    if stream:
        events = [json.loads(one[6:]) for one in told.body.split(b"\n\n") if one[6:7] == b"{"]
        assert "".join(one["choices"][0]["text"] for one in events).strip() == "from chat"
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
        assert told.body.endswith(DONE) and b"usage" not in told.body
        assert all(one["object"] == "text_completion" for one in events)
    else:
        assert told.json["choices"] == [
            {"text": "from chat", "index": 0, "logprobs": None, "finish_reason": "stop"}
        ]
        assert told.json["usage"]["completion_tokens"] == USAGE["completion_tokens"]
    assert entries[0].cost_nusd == 18_000


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"prompt": [1, 2]}, "token ids"),
        ({"prompt": ["a", "b"]}, "several prompts"),
        ({"prompt": "a", "echo": True}, "cannot echo the prompt"),
        ({"prompt": "a", "suffix": "z"}, "before a suffix"),
        ({"prompt": "a", "logprobs": 2}, "another form"),
    ],
)
async def test_what_a_chat_cannot_be_told_makes_it_pass_by(more: Any, says: str) -> None:
    entries: list[Entry] = []
    async with served(both) as chat, served(both) as text:
        built = gateway(settings(chat, has=False), entries)
        told = await ask(built.app, {"model": "text", **more}, path=PATH)
        assert told.status == 400 and says in told.json["error"]["message"]
        assert told.json["error"]["code"] == "no_eligible_target" and not chat.requests
        built.close()
        given = settings(chat, has=False)
        given["providers"]["b"] = {"base_url": f"{text.origin}/v1", "completions": True}
        given["models"]["text"] = {"strategy": "ordered", "targets": ["a/m", "b/m"]}
        built = gateway(given, entries)
        told = await ask(built.app, {"model": "text", **more}, path=PATH)
        built.close()
        assert told.status == 200 and told.headers["x-headrace-provider"] == "b"


async def test_the_catalog_knows_who_has_them() -> None:
    built = gateway(
        {
            "providers": {
                "openai": "key", "groq": "key", "deepseek": "key", "vllm": {},
                "azure": {"base_url": "https://x.openai.azure.com", "api_key": "key",
                          "api_version": "2024-10-21"},
            },
            "models": {"m": ["openai/m"]},
        },
        [],
    )  # fmt: skip
    name = "openai-completions"
    paths = {
        key: one.base.joined(one.passes[name].path("m", False)) if name in one.passes else None
        for key, one in built.providers.items()
    }
    built.close()
    assert paths == {
        "openai": "/v1/completions", "groq": None, "deepseek": "/beta/completions",
        "vllm": "/v1/completions",
        "azure": "/openai/deployments/m/completions?api-version=2024-10-21",
    }  # fmt: skip


@pytest.mark.parametrize("has", [False, True])
async def test_the_openai_package(has: bool) -> None:
    async with served(both) as provider:
        given = {"providers": {"a": {"base_url": f"{provider.origin}/v1", "completions": has}}}
        async with listening(both, **given) as gate:
            client = openai.AsyncOpenAI(base_url=f"{gate.url}/v1", api_key="none")
            whole = await client.completions.create(model="chat", prompt="Hi", max_tokens=9)
            assert whole.choices[0].text == ("from text" if has else "from chat")
            assert whole.usage is not None and whole.usage.total_tokens == 15
            text, usage = "", None
            stream = await client.completions.create(
                model="chat", prompt="Hi", stream=True, stream_options={"include_usage": True}
            )
            async for one in stream:
                text += "".join(choice.text for choice in one.choices)
                usage = one.usage or usage
            assert text.strip() == ("from text" if has else "from chat")
            assert usage is not None and usage.total_tokens == 15
            await client.close()
            assert [one.outcome for one in gate.entries] == ["answered"] * 2


async def test_the_cache_gives_either_form() -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        given = settings(provider, has=True, cache={"enabled": True})
        built = gateway(given, entries)
        body = {"model": "text", "prompt": [1, 2, 3], "temperature": 0}
        first = await ask(built.app, body, path=PATH)
        again = await ask(built.app, body, path=PATH)
        stream = await ask(built.app, {**body, "stream": True}, path=PATH)
        built.close()
        assert len(provider.requests) == 1
    assert [one.headers["x-headrace-cache"] for one in (first, again, stream)] == [
        "miss", "hit", "hit",
    ]  # fmt: skip
    assert again.json["choices"] == first.json["choices"]
    assert again.json["x_new_field"] == first.json["x_new_field"]
    assert b'"text":"from text"' in stream.body and stream.body.endswith(DONE)
