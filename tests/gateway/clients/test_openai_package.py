"""OpenAI's Python package, unmodified, against a gateway on a socket."""

from __future__ import annotations

import json
from typing import Any

import openai
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

HI: Any = [{"role": "user", "content": "Weather?"}]
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
FUNCTION: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}


def client(gateway: Listening, key: str = "none") -> openai.AsyncOpenAI:
    """No retries of its own."""
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def test_chat() -> None:
    async with listening() as gateway, client(gateway) as asks:
        raw = await asks.chat.completions.with_raw_response.create(model="chat", messages=HI)
        told = raw.parse()
        assert told.choices[0].message.content == TEXT and told.choices[0].finish_reason == "stop"
        assert told.usage is not None
        assert (told.usage.prompt_tokens, told.usage.completion_tokens) == (READ, WROTE)
        assert raw.headers["x-headrace-provider"] == "a" and raw.headers["x-request-id"]
    (entry,) = gateway.entries
    assert (entry.outcome, entry.cost_nusd) == ("answered", 18_000)


@pytest.mark.parametrize("usage", [False, True])
async def test_a_chat_stream(usage: bool) -> None:
    more: Any = {"stream_options": {"include_usage": True}} if usage else {}
    async with listening() as gateway, client(gateway) as asks:
        stream = await asks.chat.completions.create(model="chat", messages=HI, stream=True, **more)
        chunks = [one async for one in stream]
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    counted = [one.usage.prompt_tokens for one in chunks if one.usage]
    assert text == TEXT and counted == ([READ] if usage else [])
    (entry,) = gateway.entries
    assert (entry.outcome, entry.finish, entry.cost_nusd) == ("answered", "stop", 18_000)


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_and_the_turn_after(stream: bool) -> None:
    async with listening() as gateway, client(gateway) as asks:
        if stream:
            async with asks.chat.completions.stream(
                model="chat", messages=HI, tools=[TOOL]
            ) as events:
                whole = await events.get_final_completion()
                message: Any = whole.choices[0].message
        else:
            told = await asks.chat.completions.create(model="chat", messages=HI, tools=[TOOL])
            message = told.choices[0].message
        (call,) = message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", ARGUMENTS)
        turns = [*HI, message.model_dump(exclude_none=True, exclude={"parsed"})]
        turns.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
        after = await asks.chat.completions.create(model="chat", messages=turns, tools=[TOOL])
        assert after.choices[0].message.content == TEXT


async def test_responses() -> None:
    async with listening() as gateway, client(gateway) as asks:
        told = await asks.responses.create(model="chat", input="Hi", instructions="Be brief.")
        assert told.output_text == TEXT and told.status == "completed"
        assert told.usage is not None
        assert (told.usage.input_tokens, told.usage.output_tokens) == (READ, WROTE)
        assert sent(gateway.provider)["messages"] == [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
        ]  # fmt: skip


async def test_a_responses_stream() -> None:
    async with (
        listening() as gateway,
        client(gateway) as asks,
        asks.responses.stream(model="chat", input="Hi") as events,
    ):
        deltas = [one.delta async for one in events if one.type == "response.output_text.delta"]
        whole = await events.get_final_response()
    assert "".join(deltas) == whole.output_text == TEXT
    assert whole.usage is not None and whole.usage.total_tokens == READ + WROTE


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_with_tools_and_the_turn_after(stream: bool) -> None:
    async with listening() as gateway, client(gateway) as asks:
        if stream:
            async with asks.responses.stream(model="chat", input="Hi", tools=[FUNCTION]) as events:
                output: Any = (await events.get_final_response()).output
        else:
            told = await asks.responses.create(model="chat", input="Hi", tools=[FUNCTION])
            output = told.output
        (call,) = (one for one in output if one.type == "function_call")
        assert call.name == "weather" and json.loads(call.arguments) == json.loads(ARGUMENTS)
        given: Any = [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": call.call_id, "name": call.name,
             "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ]  # fmt: skip
        after = await asks.responses.create(model="chat", input=given, tools=[FUNCTION])
        assert after.output_text == TEXT
        turns = sent(gateway.provider)["messages"]
        assert [one["role"] for one in turns] == ["user", "assistant", "tool"]
        assert turns[1]["tool_calls"][0]["id"] == turns[2]["tool_call_id"]


async def test_the_list_of_models() -> None:
    async with listening(aliases={"gpt-4": "chat"}) as gateway, client(gateway) as asks:
        assert [one.id async for one in asks.models.list()] == ["chat", "gpt-4"]


@pytest.mark.parametrize(
    ("status", "code", "raised"),
    [
        (400, None, openai.BadRequestError),
        (400, "context_length_exceeded", openai.BadRequestError),
        (429, None, openai.RateLimitError),
        (500, None, openai.InternalServerError),
        (503, None, openai.InternalServerError),
        (401, None, openai.InternalServerError),  # the gateway's key, not the client's
    ],
)
@pytest.mark.parametrize("responses", [False, True])
async def test_errors_of_the_provider(
    status: int, code: str | None, raised: type[openai.APIStatusError], responses: bool
) -> None:
    async with listening(says(status, "not like this", code)) as gateway, client(gateway) as asks:
        with pytest.raises(raised) as caught:
            if responses:
                await asks.responses.create(model="chat", input="Hi")
            else:
                await asks.chat.completions.create(model="chat", messages=HI)
    assert "not like this" in caught.value.message
    assert caught.value.code == code or code is None
    assert caught.value.request_id


async def test_errors_of_the_gateway() -> None:
    accounts = accounts_of(hierarchy())
    await accounts.start()
    async with listening(accounts=accounts) as gateway, client(gateway, "sk-wrong") as asks:
        with pytest.raises(openai.AuthenticationError) as refused:
            await asks.chat.completions.create(model="chat", messages=HI)
        assert "sk-wrong" not in str(refused.value)
        with pytest.raises(openai.AuthenticationError):
            await asks.models.list()
        known = asks.with_options(api_key=KEY)
        told = await known.chat.completions.create(model="chat", messages=HI)
        assert told.choices[0].message.content == TEXT
    assert gateway.entries[-1].key
    async with listening() as gateway, client(gateway) as asks:
        with pytest.raises(openai.NotFoundError):
            await asks.chat.completions.create(model="cht", messages=HI)
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            await asks.responses.create(model="chat", input="Hi", previous_response_id="resp_1")
        assert not gateway.provider.requests
    async with listening(listen={"max_body_bytes": 1024}) as gateway, client(gateway) as asks:
        with pytest.raises(openai.APIStatusError) as large:
            await asks.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "x" * 5000}]
            )
        assert large.value.status_code == 413


@pytest.mark.parametrize("responses", [False, True])
async def test_a_stream_that_breaks_off_is_an_error_to_the_client(responses: bool) -> None:
    async with listening(breaks_off) as gateway, client(gateway) as asks:
        text = ""
        with pytest.raises(openai.APIError):
            if responses:
                async for event in await asks.responses.create(
                    model="chat", input="Hi", stream=True
                ):
                    if event.type == "response.output_text.delta":
                        text += event.delta
                    if event.type in ("error", "response.failed"):
                        raise openai.APIError("told", request=None, body=None)  # type: ignore[arg-type]
            else:
                async for chunk in await asks.chat.completions.create(
                    model="chat", messages=HI, stream=True
                ):
                    text += chunk.choices[0].delta.content or ""
    assert text == "half of it"
    assert gateway.entries[0].outcome == "cut"
