"""/v1/responses from openai, openai-agents and LangChain: `python responses_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.items import ToolCallItem
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)  # or traces are sent over the network

ASKED = "What is the weather in Paris?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Opinion(BaseModel):
    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def tour(url: str, model: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = {"model": model, "temperature": 0, "max_output_tokens": 300}

    whole = client.responses.create(**settings, input="What is a list?", instructions="Be brief.")
    assert whole.status in ("completed", "incomplete")
    assert whole.output_text
    assert whole.usage is not None and whole.usage.output_tokens > 0
    with client.responses.stream(
        **settings, input="What is a list?", instructions="Be brief."
    ) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == whole.output_text

    parsed = client.responses.parse(**settings, input="Is Python good?", text_format=Opinion)
    assert isinstance(parsed.output_parsed, Opinion)

    called = client.responses.create(
        **settings, input=ASKED, tools=[WEATHER], tool_choice="required"
    )
    [call] = [item for item in called.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    with client.responses.stream(
        **settings, input=ASKED, tools=[WEATHER], tool_choice="required"
    ) as stream:
        events = list(stream)
        output = stream.get_final_response().output
    [again] = [item for item in output if item.type == "function_call"]
    assert again.arguments == call.arguments
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments

    # The result of the call: after the items themselves, and after the stored response.
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    items = [{"role": "user", "content": ASKED}, *(i.model_dump() for i in called.output), result]
    answered = client.responses.create(**settings, input=items, tools=[WEATHER], tool_choice="none")
    stored = client.responses.create(
        **settings,
        input=[result],
        previous_response_id=called.id,
        tools=[WEATHER],
        tool_choice="none",
    )
    assert answered.output_text and stored.output_text == answered.output_text
    assert client.responses.retrieve(stored.id).output_text == stored.output_text
    client.responses.delete(stored.id)
    try:
        client.responses.retrieve(stored.id)
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("a response that was deleted is still there")


@function_tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"21 degrees in {city}"


async def agents_tour(url: str, name: str) -> None:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = OpenAIResponsesModel(model=name, openai_client=client)
    settings = ModelSettings(temperature=0, max_tokens=300)
    typed = Agent(name="critic", model=model, output_type=Opinion, model_settings=settings)
    assert isinstance((await Runner.run(typed, "Is Python good?")).final_output, Opinion)
    required = ModelSettings(temperature=0, max_tokens=300, tool_choice="required")
    agent = Agent(name="helper", model=model, tools=[get_weather], model_settings=required)
    whole = await Runner.run(agent, ASKED)
    calls = [item.raw_item for item in whole.new_items if isinstance(item, ToolCallItem)]
    assert calls and json.loads(calls[0].arguments) == {"city": "Paris"}
    streamed = Runner.run_streamed(agent, ASKED)
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == whole.final_output


def langchain_tour(url: str, model: str) -> None:
    chat = ChatOpenAI(
        base_url=f"{url}/v1",
        api_key="none",
        model=model,
        max_retries=0,
        temperature=0,
        max_tokens=300,
        use_responses_api=True,
    )
    whole = chat.invoke("What is a list?")
    assert whole.text
    assert "".join(piece.text for piece in chat.stream("What is a list?")) == whole.text
    held = chat.with_structured_output(Opinion, method="json_schema")
    assert isinstance(held.invoke("Is Python good?"), Opinion)


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    asyncio.run(agents_tour(*sys.argv[1:3]))
    langchain_tour(*sys.argv[1:3])
    print("openai", openai.__version__, "openai-agents", version("openai-agents"))
