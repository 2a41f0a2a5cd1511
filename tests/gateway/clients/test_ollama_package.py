"""Ollama's Python package, unmodified, against a gateway on a socket."""

from __future__ import annotations

import json
from typing import Any

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
