"""The ollama package against a server: `python ollama_tour.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import ollama

USER = {"role": "user", "content": "What is the weather in Paris?"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": SCHEMA,
    },
}
GREEDY = {"temperature": 0, "num_predict": 60}


def models_tour(client: ollama.Client, model: str) -> None:
    assert model in [one.model for one in client.list().models]
    assert model in [one.model for one in client.ps().models]
    capabilities = client.show(f"{model}:latest").capabilities or []
    assert {"completion", "tools"} <= set(capabilities)
    for refused in (client.pull, client.delete, client.embed):
        try:
            refused("x")
        except ollama.ResponseError as raised:
            assert "is not supported here" in raised.error
        else:
            raise AssertionError("what keeps models was accepted")


def chat_tour(client: ollama.Client, model: str) -> None:
    asked: Any = {"model": model, "messages": [USER], "options": GREEDY}
    whole = client.chat(**asked)
    assert whole.done and whole.eval_count and whole.total_duration
    parts = list(client.chat(**asked, stream=True))
    assert "".join(one.message.content or "" for one in parts) == whole.message.content
    assert (parts[-1].done_reason, parts[-1].eval_count) == (whole.done_reason, whole.eval_count)
    held = client.chat(**asked, format=SCHEMA)
    if held.done_reason == "stop":
        assert list(json.loads(held.message.content or "")) == ["city"]


def loop_tour(client: ollama.Client, model: str) -> None:
    turns: list[Any] = [USER]
    reply = client.chat(model, turns, tools=[TOOL], options=GREEDY)
    (call,) = reply.message.tool_calls or ()
    assert call.function.name == "get_weather" and list(call.function.arguments) == ["city"]
    turns += [reply.message, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
    assert client.chat(model, turns, tools=[TOOL], options=GREEDY).message.content


def generate_tour(client: ollama.Client, model: str) -> None:
    raw = client.generate(model, "Once upon a time", raw=True, options=GREEDY)
    assert raw.response and raw.context is None
    first = client.generate(model, "Say something.", options=GREEDY)
    assert first.context
    second = client.generate(model, "And more.", context=first.context, options=GREEDY)
    assert (second.prompt_eval_count or 0) > len(first.context)
    parts = list(client.generate(model, "Say something.", stream=True, options=GREEDY))
    assert "".join(one.response for one in parts) == first.response


async def async_tour(url: str, model: str) -> None:
    client = ollama.AsyncClient(host=url)
    asked: Any = {"model": model, "messages": [USER], "options": {"num_predict": 8}}
    replies = await asyncio.gather(*(client.chat(**asked) for _ in range(3)))
    assert all(reply.done for reply in replies)
    stream = await client.chat(**asked, stream=True)
    assert [one.done async for one in stream][-1]


def main(url: str, model: str) -> None:
    client = ollama.Client(host=url)
    models_tour(client, model)
    chat_tour(client, model)
    loop_tour(client, model)
    generate_tour(client, model)
    asyncio.run(async_tour(url, model))


if __name__ == "__main__":
    main(*sys.argv[1:])
