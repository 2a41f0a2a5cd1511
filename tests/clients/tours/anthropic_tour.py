"""The anthropic package against a server: `python anthropic_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anthropic

USER = {"role": "user", "content": "What is the weather in Paris?"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "Current weather of a city.", "input_schema": SCHEMA}
GREEDY = {"temperature": 0}
SYSTEM = "You are a helpful assistant that looks things up before it answers. " * 4


def text_tour(client: anthropic.Anthropic, model: str) -> None:
    asked: Any = {"model": model, "max_tokens": 12, "messages": [USER], "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    assert whole.type == "message" and whole.role == "assistant" and whole.model == model
    assert 0 < whole.usage.output_tokens <= 12
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [
        block.to_dict() for block in whole.content
    ]
    assert streamed.stop_reason == whole.stop_reason
    counted = client.messages.count_tokens(model=model, messages=[USER])
    usage = streamed.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert usage.cache_read_input_tokens


def loop_tour(client: anthropic.Anthropic, model: str) -> None:
    """A call of a tool, its result, and the answer; with text before that changes each turn."""
    turns: list[Any] = [USER]
    asked: Any = {"model": model, "max_tokens": 100, "tools": [TOOL], "extra_body": GREEDY}
    read = []
    for number in range(2):
        billing = f"x-anthropic-billing-header: cc_version=2.1.0.0; cch=0000{number};"
        system = [
            {"type": "text", "text": billing},
            {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}},
        ]
        choice = {"type": "auto" if number else "any"}
        reply = client.messages.create(**asked, system=system, messages=turns, tool_choice=choice)
        read.append(reply.usage)
        calls = [block for block in reply.content if block.type == "tool_use"]
        turns.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
        if number == 0:
            assert reply.stop_reason == "tool_use"
            assert [call.name for call in calls] == ["get_weather"]
            assert list(calls[0].input) == ["city"]
            result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "sunny, 21 °C"}
            turns.append({"role": "user", "content": [result]})
        else:
            assert reply.content
    first, second = read
    before = first.input_tokens + (first.cache_read_input_tokens or 0)
    assert (second.cache_read_input_tokens or 0) >= before - 16, "the prompt of turn 1 is cached"


def errors_tour(client: anthropic.Anthropic, model: str) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    content: Any = [{"type": "image", "source": picture}]
    for error, changes in (
        (anthropic.NotFoundError, {"model": "other"}),
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": content}]}),
        (anthropic.BadRequestError, {"extra_body": {"temperature": 3}}),
    ):
        asked: Any = {"model": model, "max_tokens": 4, "messages": [USER], **changes}
        try:
            client.messages.create(**asked)
        except error as raised:
            assert raised.request_id
        else:
            raise AssertionError(f"{changes} was accepted")


async def async_tour(url: str, model: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        asked: Any = {"model": model, "max_tokens": 8, "messages": [USER]}
        replies = await asyncio.gather(*(client.messages.create(**asked) for _ in range(3)))
        assert all(reply.usage.output_tokens <= 8 for reply in replies)
        async with client.messages.stream(**asked) as stream:
            events = [event.type async for event in stream]
        assert events[0] == "message_start" and events[-1] == "message_stop"


def main(url: str, model: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    text_tour(client, model)
    loop_tour(client, model)
    errors_tour(client, model)
    asyncio.run(async_tour(url, model))


if __name__ == "__main__":
    main(*sys.argv[1:])
