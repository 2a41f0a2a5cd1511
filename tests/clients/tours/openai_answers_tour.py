"""The openai package: answers that programs read. `python openai_answers_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Literal

import openai
from openai.lib.streaming.chat import ChunkEvent, FunctionToolCallArgumentsDoneEvent
from pydantic import BaseModel, Field

ASKED = {"role": "user", "content": "What is the weather in Paris?"}


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class Opinion(BaseModel):
    verdict: Literal["good", "bad"]
    reasons: list[str] = Field(min_length=1, max_length=2)
    score: int = Field(ge=0, le=9)


TOOL = openai.pydantic_function_tool(GetWeather, name="get_weather")


def tour(url: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    completions = client.chat.completions
    settings = {"model": model, "temperature": 0, "max_completion_tokens": 400}

    parsed = completions.parse(
        **settings,
        messages=[{"role": "user", "content": "Is Python good?"}],
        response_format=Opinion,
        reasoning_effort="none",
    )
    opinion = parsed.choices[0].message.parsed
    assert isinstance(opinion, Opinion), parsed
    assert json.loads(parsed.choices[0].message.content) == opinion.model_dump()

    # A strict tool: the package parses its arguments.
    called = completions.parse(
        **settings, messages=[ASKED], tools=[TOOL], tool_choice="required"
    ).choices[0]
    assert called.finish_reason == "tool_calls"
    [call] = called.message.tool_calls
    assert call.function.name == "get_weather"
    assert isinstance(call.function.parsed_arguments, GetWeather)
    assert call.function.parsed_arguments.city == "Paris"

    # The same as a stream.
    with completions.stream(
        **settings, messages=[ASKED], tools=[TOOL], tool_choice="required"
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion().choices[0].message
    assert any(isinstance(event, ChunkEvent) for event in events)
    [done] = [event for event in events if isinstance(event, FunctionToolCallArgumentsDoneEvent)]
    assert done.name == "get_weather"
    assert done.arguments == final.tool_calls[0].function.arguments == call.function.arguments
    assert final.tool_calls[0].id and final.tool_calls[0].id != call.id

    # The loop of an agent: the call, its result, and an answer in words.
    talk = [ASKED, called.message.model_dump(exclude_none=True, exclude={"parsed"})]
    talk.append({"role": "tool", "tool_call_id": call.id, "content": '{"celsius": 21}'})
    answered = completions.create(**settings, messages=talk, tools=[TOOL], tool_choice="none")
    assert answered.choices[0].finish_reason == "stop", answered
    assert answered.choices[0].message.content
    assert not answered.choices[0].message.tool_calls

    # Whether to call is the model's to say; what it calls is one of the tools.
    free = completions.create(**settings, messages=[ASKED], tools=[TOOL]).choices[0].message
    assert all(one.function.name == "get_weather" for one in free.tool_calls or [])

    try:
        completions.create(**settings, messages=[ASKED], tool_choice="required")
    except openai.BadRequestError as error:
        assert error.param == "tool_choice"
    else:
        raise AssertionError("tool_choice without tools was accepted")


async def async_tour(url: str, model: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        parsed = await asyncio.gather(
            *(
                client.chat.completions.parse(
                    model=model,
                    messages=[{"role": "user", "content": f"Is {name} good?"}],
                    response_format=Opinion,
                    max_completion_tokens=400,
                    reasoning_effort="none",
                    seed=1,
                )
                for name in ("Python", "water", "tea")
            )
        )
        assert all(isinstance(one.choices[0].message.parsed, Opinion) for one in parsed)


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    asyncio.run(async_tour(*sys.argv[1:3]))
    print("openai", openai.__version__)
