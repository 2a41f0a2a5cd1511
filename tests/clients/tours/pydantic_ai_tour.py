"""Pydantic AI: agents with tools and typed output. `python pydantic_ai_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings


class Opinion(BaseModel):
    """What somebody thinks of a thing."""

    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


async def tour(url: str, name: str) -> None:
    model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    settings = ModelSettings(temperature=0, max_tokens=300)
    for output in (ToolOutput(Opinion), NativeOutput(Opinion)):
        agent = Agent(model, output_type=output, model_settings=settings, retries=0)
        result = await agent.run("Is Python good?")
        assert isinstance(result.output, Opinion), output
        async with agent.run_stream("Is Python good?") as stream:
            assert await stream.get_output() == result.output, output

    cities: list[str] = []
    agent = Agent(model, output_type=[str, Opinion], model_settings=settings)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Weather of a city"""
        cities.append(city)
        return f"21 degrees in {city}"

    result = await agent.run("What is the weather in Paris?")
    parts = [part for message in result.all_messages() for part in message.parts]
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    assert [call.args_as_dict() for call in calls if call.tool_name == "get_weather"] == [
        {"city": city} for city in cities
    ]
    assert cities and set(cities) == {"Paris"}
    assert result.output


if __name__ == "__main__":
    asyncio.run(tour(*sys.argv[1:3]))
    print("pydantic-ai-slim", version("pydantic-ai-slim"))
