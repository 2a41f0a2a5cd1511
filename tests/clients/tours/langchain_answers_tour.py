"""LangChain: tools and structured output. `python langchain_answers_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Literal

from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


@tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"21 degrees in {city}"


class Opinion(BaseModel):
    """What somebody thinks of a thing."""

    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def tour(url: str, model: str) -> None:
    chat = ChatOpenAI(
        base_url=f"{url}/v1",
        api_key="none",
        model=model,
        max_retries=0,
        temperature=0,
        max_tokens=300,
    )
    question = HumanMessage("Is Python good?")
    held = [
        chat.with_structured_output(Opinion, method=method)
        for method in ("json_schema", "function_calling")
    ]
    opinions = [each.invoke([question]) for each in held]
    assert all(isinstance(opinion, Opinion) for opinion in opinions), opinions

    async def together() -> list[object]:
        return await asyncio.gather(*(each.ainvoke([question]) for each in held))

    assert asyncio.run(together()) == opinions
    raw = chat.with_structured_output(Opinion, method="json_schema", include_raw=True)
    assert raw.invoke([question])["parsing_error"] is None

    asked = [HumanMessage("What is the weather in Paris?")]
    caller = chat.bind_tools([get_weather], tool_choice="required")
    called = caller.invoke(asked)
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    joined = AIMessageChunk("")
    for chunk in caller.stream(asked):
        joined += chunk
    [streamed] = joined.tool_calls
    assert (streamed["name"], streamed["args"]) == (call["name"], call["args"])
    named = chat.bind_tools([get_weather], tool_choice="get_weather").invoke(asked)
    assert [one["name"] for one in named.tool_calls] == ["get_weather"]

    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert result.content == "21 degrees in Paris"
    answered = chat.bind_tools([get_weather], tool_choice="none").invoke([*asked, called, result])
    assert answered.text and not answered.tool_calls


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("langchain-openai", version("langchain-openai"))
