"""The ollama package against /api: `python ollama_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Literal

import ollama
from pydantic import BaseModel

ASKED = {"role": "user", "content": "What is the weather in Paris?"}
GREEDY = {"temperature": 0, "num_predict": 300}


class Opinion(BaseModel):
    thing: Literal["Python", "Java"]
    verdict: Literal["good", "bad"]


def get_weather(city: str) -> str:
    """
    Weather of a city

    Args:
      city: Its name
    """
    return f"21 degrees in {city}"


def tour(url: str, model: str) -> None:
    client = ollama.Client(host=url)
    assert model in [one.model.removesuffix(":latest") for one in client.list().models]
    assert client.show(model).details is not None

    question = [{"role": "user", "content": "What is a list?"}]
    whole = client.chat(model, question, options=GREEDY)
    assert whole.done and whole.message.content
    assert whole.eval_count and whole.prompt_eval_count
    parts = list(client.chat(model, question, options=GREEDY, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts].index(True) == len(parts) - 1

    held = client.chat(
        model,
        [{"role": "user", "content": "Is Python good?"}],
        format=Opinion.model_json_schema(),
        options=GREEDY,
    )
    Opinion.model_validate_json(held.message.content)

    # Whether to call is the model's: /api has no field that requires it.
    called = client.chat(model, [ASKED], tools=[get_weather], options=GREEDY)
    for call in called.message.tool_calls or []:
        assert call.function.name == "get_weather"
        assert isinstance(call.function.arguments["city"], str)
    streamed = list(client.chat(model, [ASKED], tools=[get_weather], options=GREEDY, stream=True))
    calls = [call for part in streamed for call in part.message.tool_calls or []]
    assert [call.function for call in calls] == [
        call.function for call in called.message.tool_calls or []
    ]
    talk = [ASKED, called.message, {"role": "tool", "content": "21", "tool_name": "get_weather"}]
    assert client.chat(model, talk, tools=[get_weather], options=GREEDY).done

    text = client.generate(model, "import ", options={**GREEDY, "num_predict": 8}, raw=True)
    pieces = client.generate(
        model, "import ", options={**GREEDY, "num_predict": 8}, raw=True, stream=True
    )
    assert "".join(piece.response for piece in pieces) == text.response
    form = client.generate(model, "One word:", format={"enum": ["a", "b"]}, options=GREEDY)
    assert json.loads(form.response) in ("a", "b")

    try:
        client.chat("absent", question)
    except ollama.ResponseError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("a model that is not there answered")


async def async_tour(url: str, model: str) -> None:
    client = ollama.AsyncClient(host=url)
    options = {**GREEDY, "num_predict": 8}
    answers = await asyncio.gather(*(client.chat(model, [ASKED], options=options) for _ in "ab"))
    assert answers[0].message == answers[1].message


if __name__ == "__main__":
    tour(*sys.argv[1:3])
    asyncio.run(async_tour(*sys.argv[1:3]))
    print("ollama", version("ollama"))
