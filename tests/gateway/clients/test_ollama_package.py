"""Ollama's Python package, unmodified, against a gateway on a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.clients.over_socket import (
    ARGUMENTS,
    READ,
    SCHEMA,
    TEXT,
    WROTE,
    Listening,
    breaks_off,
    listening,
    says,
    sent,
)
from tests.gateway.openai_provider import END, STREAM_HEAD, framed
from tests.gateway.upstream.scripted import served

ollama = pytest.importorskip("ollama")

HI: Any = [{"role": "user", "content": "Weather?"}]
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def client(gateway: Listening, key: str | None = None) -> Any:
    """key: sent as Ollama's cloud wants it."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return ollama.AsyncClient(host=gateway.url, headers=headers)


async def test_chat() -> None:
    async with listening() as gateway:
        told = await client(gateway).chat("chat", HI, options={"temperature": 0.5, "seed": 7})
        assert (told.message.content, told.done_reason) == (TEXT, "stop")
        assert (told.prompt_eval_count, told.eval_count) == (READ, WROTE)
        body = sent(gateway.provider)
        assert (body["temperature"], body["seed"]) == (0.5, 7)
    assert gateway.entries[0].cost_nusd == 18_000


async def test_a_name_with_the_tag_that_clients_add() -> None:
    async with listening() as gateway:
        told = await client(gateway).chat("chat:latest", HI)
        assert told.message.content == TEXT
        assert (await client(gateway).show("chat:latest")).capabilities
        with pytest.raises(ollama.ResponseError, match="'chat:7b' is not served"):
            await client(gateway).chat("chat:7b", HI)


async def test_a_stream() -> None:
    async with listening() as gateway:
        parts = [one async for one in await client(gateway).chat("chat", HI, stream=True)]
    assert "".join(one.message.content for one in parts) == TEXT and len(parts) > 2
    assert parts[-1].done and parts[-1].eval_count == WROTE
    assert gateway.entries[0].cost_nusd == 18_000


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_and_the_turn_after(stream: bool) -> None:
    async with listening() as gateway:
        asks = client(gateway)
        if stream:
            parts = [one async for one in await asks.chat("chat", HI, tools=[TOOL], stream=True)]
            (message,) = (one.message for one in parts if one.message.tool_calls)
        else:
            message = (await asks.chat("chat", HI, tools=[TOOL])).message
        (call,) = message.tool_calls
        assert call.function.name == "weather"
        assert call.function.arguments == json.loads(ARGUMENTS)
        turns = [*HI, message, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
        after = await asks.chat("chat", turns, tools=[TOOL])
        assert after.message.content == TEXT
        given = sent(gateway.provider)["messages"]
        assert given[1]["tool_calls"][0]["id"] == given[2]["tool_call_id"]


async def test_the_list_of_models() -> None:
    async with listening(aliases={"llama": "chat"}) as gateway:
        found = await client(gateway).list()
    assert [one.model for one in found.models] == ["chat", "llama"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "told"), [(400, 400), (429, 429), (500, 502), (401, 502)])
async def test_errors_of_the_provider(status: int, told: int, stream: bool) -> None:
    async with listening(says(status, "not like this")) as gateway:
        with pytest.raises(ollama.ResponseError, match="not like this") as caught:
            answer = await client(gateway).chat("chat", HI, stream=stream)
            if stream:
                async for _ in answer:
                    pass
    assert caught.value.status_code == told


async def test_errors_of_the_gateway() -> None:
    accounts = accounts_of(hierarchy())
    await accounts.start()
    async with listening(accounts=accounts) as gateway:
        with pytest.raises(ollama.ResponseError) as refused:
            await client(gateway).chat("chat", HI)
        assert refused.value.status_code == 401
        assert (await client(gateway, KEY).chat("chat", HI)).message.content == TEXT
        with pytest.raises(ollama.ResponseError) as absent:
            await client(gateway, KEY).chat("cht", HI)
        assert absent.value.status_code in (403, 404)


async def test_a_stream_that_breaks_off_is_an_error_to_the_client() -> None:
    text = ""
    async with listening(breaks_off) as gateway:
        with pytest.raises(ollama.ResponseError):
            async for one in await client(gateway).chat("chat", HI, stream=True):
                text += one.message.content
    assert text == "half of it" and gateway.entries[0].outcome == "cut"


async def test_generate() -> None:
    async with listening() as gateway:
        asks = client(gateway)
        told = await asks.generate(
            "chat", "Weather?", system="Be short.", options={"temperature": 0.5}, format="json"
        )
        assert (told.response, told.done, told.done_reason) == (TEXT, True, "stop")
        assert (told.prompt_eval_count, told.eval_count) == (READ, WROTE)
        body = sent(gateway.provider)
        assert body["messages"] == [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Weather?"},
        ]
        assert body["temperature"] == 0.5 and body["response_format"] == {"type": "json_object"}
        parts = [one async for one in await asks.generate("chat", "Weather?", stream=True)]
        assert "".join(one.response for one in parts) == TEXT and len(parts) > 2
        assert parts[-1].done and parts[-1].eval_count == WROTE
        loaded = await asks.generate("chat")
        assert (loaded.response, loaded.done_reason) == ("", "load")
    assert [one.cost_nusd for one in gateway.entries] == [18_000, 18_000]
    assert {one.dialect for one in gateway.entries} == {"ollama-generate"}


@pytest.mark.parametrize("more", [{"suffix": "z"}, {"raw": True}, {"context": [1, 2]}])
async def test_what_only_an_ollama_server_can_do_is_refused_by_name(more: Any) -> None:
    async with listening() as gateway:
        with pytest.raises(ollama.ResponseError, match="only chat") as caught:
            await client(gateway).generate("chat", "Weather?", **more)
    assert caught.value.status_code == 400 and not gateway.provider.requests


async def test_show_and_what_is_loaded() -> None:
    target = {"model": "a/m", "context_tokens": 8192}
    async with listening(models={"chat": {"targets": [target]}}, aliases={"x": "chat"}) as gateway:
        asks = client(gateway)
        shown = await asks.show("x")
        assert shown.capabilities == ["completion", "tools"]
        assert shown.modelinfo["headrace.context_length"] == 8192
        assert [one.model for one in (await asks.ps()).models] == ["chat", "x"]
        with pytest.raises(ollama.ResponseError, match="not found") as absent:
            await asks.show("llama9")
        assert absent.value.status_code == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_look_whether_it_is_there(method: str) -> None:
    accounts = accounts_of(hierarchy())
    await accounts.start()
    async with listening(accounts=accounts) as gateway, httpx.AsyncClient() as http:
        told = await http.request(method, gateway.url)
        assert (told.status_code, told.text) == (
            200,
            "Ollama is running" if method == "GET" else "",
        )
        version = await http.request(method, f"{gateway.url}/api/version")
        assert version.status_code == 200
        assert method == "HEAD" or version.json()["version"].count(".") == 2
        # Names of models are not for everybody.
        assert (await http.get(f"{gateway.url}/api/ps")).status_code == 401
        show = await http.post(f"{gateway.url}/api/show", json={"model": "chat"})
        assert show.status_code == 401


async def test_generate_at_an_ollama_server_is_passed_on() -> None:
    lines = [
        {"model": "m", "created_at": "2026-11-22T10:00:00Z", "response": "Hel", "done": False},
        {"model": "m", "created_at": "2026-11-22T10:00:00Z", "response": "lo", "done": False},
        {"model": "m", "created_at": "2026-11-22T10:00:01Z", "response": "", "done": True,
         "done_reason": "stop", "context": [1, 2], "prompt_eval_count": 12, "eval_count": 3},
    ]  # fmt: skip

    async def answer(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        assert request.startswith(b"POST /api/generate HTTP/1.1")
        writer.write(STREAM_HEAD.replace(b"text/event-stream", b"application/x-ndjson"))
        for one in lines:
            writer.write(framed(json.dumps(one).encode() + b"\n"))
        writer.write(END)

    async with served(answer) as server:
        given = {"a": {"base_url": str(server.origin), "dialect": "ollama"}}
        async with listening(providers=given) as gateway:
            told = await client(gateway).generate("chat", "Hi", raw=True, stream=True)
            parts = [one async for one in told]
        body = server.requests[0].partition(b"\r\n\r\n")[2]
    assert json.loads(body)["raw"] is True and json.loads(body)["model"] == "m"
    assert "".join(one.response for one in parts) == "Hello" and parts[-1].context == [1, 2]
    assert gateway.entries[0].cost_nusd == 18_000 and gateway.entries[0].finish == "stop"
