"""A conversation in process and over HTTP: the same tokens, the same parts of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from headrace import LLM, SamplingParams
from tests.system.conftest import serve  # noqa: F401  (a fixture)

WEATHER: dict[str, Any] = {
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
FORM = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}},
    "required": ["answer"],
}
ASKED: list[dict[str, Any]] = [
    {"tools": [WEATHER], "tool_choice": "required"},
    {"tools": [WEATHER]},
    {"structured_outputs": {"json": FORM}},
    {"reasoning_effort": "none"},
]


@pytest.mark.process
def test_a_chat_is_the_same_in_process_and_over_http(serve: Callable[..., Any]) -> None:  # noqa: F811
    server = serve(None)
    llm = LLM()
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    with httpx2.Client(base_url=server.url, timeout=120) as client:
        for fields in ASKED:
            body = {"messages": messages, "temperature": 0, "max_tokens": 80, **fields}
            reply = client.post("/v1/chat/completions", json=body | {"return_token_ids": True})
            assert reply.status_code == 200, reply.text
            [choice] = reply.json()["choices"]
            form = fields.get("structured_outputs")
            params = SamplingParams(temperature=0, max_tokens=80, structured_outputs=form)
            others = {name: fields[name] for name in fields if name != "structured_outputs"}
            result = llm.chat(messages, params, **others)
            message = choice["message"]
            calls = [call["function"] for call in message.get("tool_calls", [])]
            own = [{"name": call.name, "arguments": call.arguments} for call in result.tool_calls]
            assert list(result.prompt_token_ids) == reply.json()["prompt_token_ids"]
            assert list(result.token_ids) == choice["token_ids"]
            assert (result.content or None) == (message["content"] or None)
            assert result.reasoning == message.get("reasoning")
            assert own == calls
            assert result.finish_reason == choice["finish_reason"]
