"""The openai-agents package over chat completions: `python agents_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.items import ToolCallItem
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)  # or traces are sent over the network


class Opinion(BaseModel):
    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


@function_tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"21 degrees in {city}"


async def tour(url: str, name: str) -> None:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = OpenAIChatCompletionsModel(model=name, openai_client=client)
    settings = ModelSettings(temperature=0, max_tokens=300)

    typed = Agent(name="critic", model=model, output_type=Opinion, model_settings=settings)
    assert isinstance((await Runner.run(typed, "Is Python good?")).final_output, Opinion)

    # A tool must be called the first time; what it gives is shown, and words answer.
    required = ModelSettings(temperature=0, max_tokens=300, tool_choice="required")
    agent = Agent(name="helper", model=model, tools=[get_weather], model_settings=required)
    asked = "What is the weather in Paris?"
    whole = await Runner.run(agent, asked)
    calls = [item.raw_item for item in whole.new_items if isinstance(item, ToolCallItem)]
    assert calls and calls[0].name == "get_weather"
    assert json.loads(calls[0].arguments) == {"city": "Paris"}
    assert whole.final_output

    streamed = Runner.run_streamed(agent, asked)
    kinds = {event.type async for event in streamed.stream_events()}
    assert {"raw_response_event", "run_item_stream_event"} <= kinds
    assert streamed.final_output == whole.final_output


if __name__ == "__main__":
    asyncio.run(tour(*sys.argv[1:3]))
    print("openai-agents", version("openai-agents"))
