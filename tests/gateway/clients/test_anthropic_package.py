"""Anthropic's Python package, unmodified, against a gateway on a socket."""

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

anthropic = pytest.importorskip("anthropic")

ASK: Any = {
    "model": "chat",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Weather?"}],
}
TOOL: Any = {"name": "weather", "input_schema": SCHEMA}


def client(gateway: Listening, key: str = "none") -> Any:
    """No retries of its own."""
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0)


async def test_a_message() -> None:
    async with listening() as gateway, client(gateway) as asks:
        told = await asks.messages.create(**ASK, system="Be brief.", stop_sequences=["x"])
        assert [one.text for one in told.content] == [TEXT]
        assert (told.stop_reason, told.model) == ("end_turn", "m")
        assert (told.usage.input_tokens, told.usage.output_tokens) == (READ, WROTE)
        body = sent(gateway.provider)
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert body["stop"] == ["x"]
    assert gateway.entries[0].cost_nusd == 18_000


async def test_a_stream() -> None:
    async with (
        listening() as gateway,
        client(gateway) as asks,
        asks.messages.stream(**ASK) as stream,
    ):
        pieces = [one async for one in stream.text_stream]
        whole = await stream.get_final_message()
    assert "".join(pieces) == whole.content[0].text == TEXT and len(pieces) > 2
    assert whole.usage.output_tokens == WROTE and whole.stop_reason == "end_turn"
    assert gateway.entries[0].cost_nusd == 18_000


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_and_the_turn_after(stream: bool) -> None:
    async with listening() as gateway, client(gateway) as asks:
        if stream:
            async with asks.messages.stream(**ASK, tools=[TOOL]) as events:
                told = await events.get_final_message()
        else:
            told = await asks.messages.create(**ASK, tools=[TOOL])
        (call,) = told.content
        assert (call.type, call.name, call.input) == ("tool_use", "weather", json.loads(ARGUMENTS))
        assert told.stop_reason == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        turns = [
            *ASK["messages"],
            {"role": "assistant", "content": told.content},
            {"role": "user", "content": [result]},
        ]
        after = await asks.messages.create(**{**ASK, "messages": turns}, tools=[TOOL])
        assert after.content[0].text == TEXT
        given = sent(gateway.provider)["messages"]
        assert [one["role"] for one in given] == ["user", "assistant", "tool"]
        assert given[1]["tool_calls"][0]["id"] == given[2]["tool_call_id"]


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, "BadRequestError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (503, "InternalServerError"),
        (401, "InternalServerError"),  # the gateway's key, not the client's
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_the_provider(status: int, raised: str, stream: bool) -> None:
    async with listening(says(status, "not like this")) as gateway, client(gateway) as asks:
        with pytest.raises(getattr(anthropic, raised)) as caught:
            await asks.messages.create(**ASK, stream=stream)
    assert "not like this" in str(caught.value)
    assert caught.value.body["type"] == "error"


async def test_errors_of_the_gateway() -> None:
    accounts = accounts_of(hierarchy())
    await accounts.start()
    async with listening(accounts=accounts) as gateway:
        async with client(gateway, "sk-wrong") as asks:
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await asks.messages.create(**ASK)
            assert "sk-wrong" not in str(refused.value)
        async with client(gateway, KEY) as asks:
            told = await asks.messages.create(**ASK)
            assert told.content[0].text == TEXT
    async with listening() as gateway, client(gateway) as asks:
        with pytest.raises(anthropic.NotFoundError):
            await asks.messages.create(**{**ASK, "model": "cht"})
        with pytest.raises(anthropic.BadRequestError) as bad:
            await asks.messages.create(**{**ASK, "max_tokens": -1})
        assert "max_tokens" in str(bad.value)


async def test_a_stream_that_breaks_off_is_an_error_to_the_client() -> None:
    async with listening(breaks_off) as gateway, client(gateway) as asks:
        text = ""
        with pytest.raises(anthropic.APIError):
            async with asks.messages.stream(**ASK) as stream:
                async for piece in stream.text_stream:
                    text += piece
    assert text == "half of it" and gateway.entries[0].outcome == "cut"
