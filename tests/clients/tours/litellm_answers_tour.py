"""LiteLLM: tools and structured output. `python litellm_answers_tour.py URL MODEL`."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network for prices

import litellm
from pydantic import BaseModel

ASKED = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Opinion(BaseModel):
    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def tour(url: str, model: str) -> None:
    for route in ("openai", "hosted_vllm"):
        settings = {
            "model": f"{route}/{model}",
            "api_base": f"{url}/v1",
            "api_key": "none",
            "max_tokens": 300,
            "temperature": 0,
            "num_retries": 0,
        }
        held = litellm.completion(
            **settings,
            messages=[{"role": "user", "content": "Is Python good?"}],
            response_format=Opinion,
        )
        Opinion.model_validate_json(held.choices[0].message.content)
        reasoning = held.choices[0].message.reasoning_content
        assert reasoning is None or "<think>" not in reasoning

        tools = {"tools": [WEATHER], "tool_choice": "required"}
        called = litellm.completion(**settings, messages=[ASKED], **tools).choices[0]
        assert called.finish_reason == "tool_calls"
        [call] = called.message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris"}
        chunks = list(litellm.completion(**settings, messages=[ASKED], stream=True, **tools))
        whole = litellm.stream_chunk_builder(chunks, messages=[ASKED]).choices[0]
        assert whole.finish_reason == "tool_calls"
        [streamed] = whole.message.tool_calls
        assert streamed.function.name == call.function.name
        assert streamed.function.arguments == call.function.arguments

        talk = [ASKED, called.message.model_dump(exclude_none=True)]
        talk.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
        answered = litellm.completion(
            **settings, messages=talk, tools=[WEATHER], tool_choice="none"
        )
        assert answered.choices[0].message.content


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    print("litellm", version("litellm"))
