"""Answers that programs read, by the embedded model: tools, forms and reasoning over HTTP."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.system.conftest import RunningServer, start_server, stop_server

pytestmark = pytest.mark.process

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = start_server(None)
    yield server
    assert stop_server(server) == 0


@pytest.fixture(scope="module")
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.mark.smoke
def test_a_loop_of_tools_runs_to_its_end(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    settings: Any = {"model": "headrace-base", "temperature": 0, "max_tokens": 200}
    first = client.chat.completions.create(messages=messages, tools=[WEATHER], **settings)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] == "Paris"
    messages.append(choice.message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"celsius": 21}'})
    second = client.chat.completions.create(messages=messages, tools=[WEATHER], **settings)
    assert second.choices[0].finish_reason == "stop"
    assert "21" in (second.choices[0].message.content or "")
    details = second.usage and second.usage.prompt_tokens_details
    assert details is not None
    assert first.usage is not None
    assert (details.cached_tokens or 0) >= first.usage.prompt_tokens - 1


def test_a_session_keeps_its_prefix_where_its_turns_may_call_and_may_not(
    client: openai.OpenAI,
) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    settings: Any = {"model": "headrace-base", "temperature": 0, "max_tokens": 40}
    before = 0
    for choice in ("none", "auto", "none"):
        reply = client.chat.completions.create(
            messages=messages, tools=[WEATHER], tool_choice=choice, **settings
        )
        message, usage = reply.choices[0].message, reply.usage
        assert (message.tool_calls is None) or choice == "auto"
        assert usage is not None and usage.prompt_tokens_details is not None
        cached = usage.prompt_tokens_details.cached_tokens or 0
        assert cached >= before // 32 * 32
        before = usage.prompt_tokens
        messages += [
            {"role": "assistant", "content": message.content or "Let me look."},
            {"role": "user", "content": "And in Oslo?"},
        ]
    assert before > 64


@pytest.mark.parametrize("seed", range(4))
def test_required_calls_are_whole_at_any_temperature(client: openai.OpenAI, seed: int) -> None:
    # Without a bound a text may be as long as it likes.
    bounded = copy.deepcopy(WEATHER)
    bounded["function"]["parameters"]["properties"]["city"]["maxLength"] = 24
    settings: Any = {
        "model": "headrace-base", "temperature": 2, "max_tokens": 400, "seed": seed,
        "tools": [bounded], "tool_choice": "required", "parallel_tool_calls": False,
        "messages": [{"role": "user", "content": "Hello"}],
    }  # fmt: skip
    choice = client.chat.completions.create(**settings).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    arguments = json.loads(call.function.arguments)
    assert sorted(arguments) == ["city", "unit"]
    assert arguments["unit"] in ("c", "f")
    assert len(arguments["city"]) <= 24
    with client.chat.completions.stream(**settings) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls or ()
    assert [each.function.arguments for each in streamed] == [call.function.arguments]


def test_a_form_holds_after_reasoning_and_is_the_same_whatever_runs_beside(
    client: openai.OpenAI,
) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
        "required": ["answer", "sure"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    settings: Any = {
        "model": "headrace-base", "max_tokens": 300, "seed": 7, "response_format": form,
        "messages": [{"role": "user", "content": "Who wrote Faust?"}],
    }  # fmt: skip
    many = client.chat.completions.create(**settings, n=8).choices
    for choice in many:
        assert choice.finish_reason == "stop"
        value = json.loads(choice.message.content or "")
        assert sorted(value) == ["answer", "sure"]
    alone = client.chat.completions.create(**settings).choices[0]
    assert alone.message.content == many[0].message.content


@pytest.mark.parametrize(
    "off", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}]
)
def test_an_answer_within_a_form_has_no_reasoning_where_it_is_off(
    client: openai.OpenAI, off: dict[str, Any]
) -> None:
    properties = {"function": {"type": "string"}, "returns": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    reply = client.chat.completions.create(
        model="headrace-base",
        messages=[{"role": "user", "content": "What does os.path.isdir return?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "f", "schema": schema}},
        temperature=0,
        max_tokens=60,
        extra_body=off,
    )
    answer: Any = reply.choices[0]
    assert getattr(answer.message, "reasoning", None) is None
    assert answer.message.content.startswith('{"function"')


def test_a_budget_closes_reasoning_and_the_answer_goes_on(client: openai.OpenAI) -> None:
    settings: Any = {
        "model": "headrace-base", "max_tokens": 300, "seed": 2, "temperature": 1,
        "messages": [{"role": "user", "content": "Who wrote Faust?"}],
    }  # fmt: skip

    def asked(budget: int) -> Any:
        extra = {"thinking_token_budget": budget}
        return client.chat.completions.create(**settings, extra_body=extra)

    free, short = asked(1000), asked(3)
    thought, cut = free.choices[0].message.reasoning, short.choices[0].message.reasoning
    assert thought.startswith(cut)
    assert len(cut) < len(thought)
    assert short.choices[0].message.content
    assert short.usage.completion_tokens_details.reasoning_tokens == 3


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"regex": r"[0-9]{3}-[a-z]{2}"}, r"[0-9]{3}-[a-z]{2}"),
        ({"ebnf": 'root ::= ("Hello" | "Hi") [!.]'}, r"(Hello|Hi)[!.]"),
        ({"guided_choice": ["tea", "coffee"]}, "tea|coffee"),
        ({"guided_grammar": "start: WORD\nWORD: /[a-f]{2,5}/"}, "[a-f]{2,5}"),
        ({"json_schema": {"type": "integer", "minimum": 10, "maximum": 99}}, "[1-9][0-9]"),
    ],
    ids=["regex", "ebnf", "choice", "lark", "schema"],
)
def test_answers_are_of_their_language_whole_and_streamed(
    client: openai.OpenAI, fields: dict[str, Any], pattern: str
) -> None:
    settings: Any = {
        "model": "headrace-base", "max_tokens": 300, "seed": 3, "temperature": 1.5,
        "messages": [{"role": "user", "content": "Say something."}],
        "extra_body": {**fields, "thinking_token_budget": 20},
    }  # fmt: skip
    (choice,) = client.chat.completions.create(**settings).choices
    assert choice.finish_reason == "stop"
    text = choice.message.content or ""
    assert re.fullmatch(pattern, text), text
    chunks = client.chat.completions.create(**settings, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
