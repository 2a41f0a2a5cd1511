"""The anthropic package against /v1/messages: `python anthropic_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Literal

import anthropic
from pydantic import BaseModel

ASKED = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Opinion(BaseModel):
    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def tour(url: str, model: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    # The package has no argument for the temperature any more.
    settings = {"model": model, "max_tokens": 300, "extra_body": {"temperature": 0}}
    question = {"role": "user", "content": [{"type": "text", "text": "What is a list?"}]}

    whole = client.messages.create(**settings, system="Be brief.", messages=[question])
    assert whole.role == "assistant"
    assert whole.stop_reason in ("end_turn", "max_tokens")
    assert whole.usage.input_tokens > 0 and whole.usage.output_tokens > 0
    text = "".join(block.text for block in whole.content if block.type == "text")
    assert text
    with client.messages.stream(**settings, system="Be brief.", messages=[question]) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert streamed == text
    assert [block.type for block in final.content] == [block.type for block in whole.content]
    assert final.stop_reason == whole.stop_reason
    counted = client.messages.count_tokens(model=model, system="Be brief.", messages=[question])
    assert counted.input_tokens > 0

    held = client.messages.parse(
        **settings,
        messages=[{"role": "user", "content": "Is Python good?"}],
        output_format=Opinion,
    )
    assert isinstance(held.parsed_output, Opinion), held

    tools = {"tools": [WEATHER], "tool_choice": {"type": "any"}}
    called = client.messages.create(**settings, messages=[ASKED], **tools)
    assert called.stop_reason == "tool_use", called
    [call] = [block for block in called.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    with client.messages.stream(**settings, messages=[ASKED], **tools) as stream:
        [again] = [b for b in stream.get_final_message().content if b.type == "tool_use"]
    assert (again.name, again.input) == (call.name, call.input)
    assert again.id and again.id != call.id
    named = {"type": "tool", "name": "get_weather"}
    chosen = client.messages.create(
        **settings, messages=[ASKED], tools=[WEATHER], tool_choice=named
    )
    assert [block.name for block in chosen.content if block.type == "tool_use"] == ["get_weather"]

    result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
    talk = [
        ASKED,
        {"role": "assistant", "content": [block.model_dump() for block in called.content]},
        {"role": "user", "content": [result]},
    ]
    answered = client.messages.create(**settings, messages=talk, tools=[WEATHER])
    assert answered.content

    for wrong, error in (
        ({"model": "absent"}, anthropic.NotFoundError),
        ({"messages": []}, anthropic.BadRequestError),
        ({"extra_body": {"temperature": -1}}, anthropic.BadRequestError),
    ):
        try:
            client.messages.create(**settings | {"messages": [question]} | wrong)
        except error as raised:
            assert raised.body["type"] == "error"
        else:
            raise AssertionError(f"{wrong} was accepted")


async def async_tour(url: str, model: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        settings = {"model": model, "max_tokens": 8, "extra_body": {"temperature": 0}}
        answers = await asyncio.gather(
            *(client.messages.create(**settings, messages=[ASKED]) for _ in range(3))
        )
        contents = [[block.model_dump() for block in one.content] for one in answers]
        assert contents[0] == contents[1] == contents[2]


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    asyncio.run(async_tour(*sys.argv[1:3]))
    print("anthropic", version("anthropic"))
