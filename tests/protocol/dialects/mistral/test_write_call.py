"""What Mistral is asked, whoever asks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    OutputFormat,
    Reasoning,
    ToolChoice,
)
from headrace.protocol.neutral.part import CacheMark, Text
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.mistral.samples import TIME, WEATHER, call, written

pytestmark = pytest.mark.usefixtures("api_descriptions")

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def dropped(asked: ChatCall) -> set[str]:
    return set(PROVIDER.write_call(asked, "mistral-large-latest").dropped)


def test_every_field_that_mistral_knows() -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)
    asked = call(
        instructions=(Text(text="Be brief."),),
        tools=(strict, TIME),
        tool_choice=ToolChoice("one", "get_time"),
        parallel_tool_calls=False,
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        frequency_penalty=-0.25,
        presence_penalty=0.75,
        seed=7,
        stop=("END", "STOP"),
        choices=2,
        output=OutputFormat(
            kind="schema", schema=SCHEMA, name="person", strict=True, description="Who"
        ),
        reasoning=Reasoning(effort="high"),
        metadata={"a": "b"},
        stream=True,
        extra={
            "safe_prompt": True,
            "prompt_mode": "reasoning",
            "prompt_cache_key": "k",
            "prediction": {
                "type": "content",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
        },
    )
    body = written(asked)
    assert body == {
        "model": "mistral-large-latest",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Get weather for a city",
                    "strict": True,
                    "parameters": WEATHER.parameters,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "get_time",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_time"}},
        "parallel_tool_calls": False,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": -0.25,
        "presence_penalty": 0.75,
        "random_seed": 7,
        "stop": ["END", "STOP"],
        "n": 2,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "person",
                "schema": SCHEMA,
                "description": "Who",
                "strict": True,
            },
        },
        "reasoning_effort": "high",
        "metadata": {"a": "b"},
        "safe_prompt": True,
        "prompt_mode": "reasoning",
        "prompt_cache_key": "k",
        "prediction": {"type": "content", "content": "ab"},
    }
    assert dropped(asked) == set()
    assert_as_described(body, "mistral/openapi.yaml", "/v1/chat/completions")


def test_what_mistral_cannot_be_told_is_named() -> None:
    asked = call(
        top_k=4,
        min_p=0.1,
        repetition_penalty=1.1,
        logit_bias={"1": 2.0},
        logprobs=True,
        top_logprobs=3,
        modalities=("text", "audio"),
        user="u",
        service_tier="flex",
        tools=(HostedTool("anthropic", {"type": "web_search"}),),
        extra={"top_a": 0.2},
    )
    assert dropped(asked) == {
        "top_k",
        "min_p",
        "repetition_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "modalities",
        "user",
        "service_tier",
        "tools.web_search",
        "extra.top_a",
    }
    assert set(written(asked)) == {"model", "messages", "stream"}


def test_what_asks_for_nothing_is_not_named() -> None:
    assert dropped(call(logprobs=False, modalities=("text",), stream_usage=True)) == set()


def test_values_beyond_a_range_are_written_as_the_nearest_and_named() -> None:
    asked = call(temperature=2, frequency_penalty=-3.0)
    assert (written(asked)["temperature"], written(asked)["frequency_penalty"]) == (1.5, -2)
    assert dropped(asked) == {"temperature", "frequency_penalty"}


def test_a_negative_seed_is_another_one_and_always_the_same() -> None:
    seed = written(call(seed=-5))["random_seed"]
    assert seed == written(call(seed=-5))["random_seed"] != written(call(seed=-6))["random_seed"]
    assert 0 <= seed < 2**63


@pytest.mark.parametrize(
    ("kind", "told"), [("auto", "auto"), ("none", "none"), ("required", "any")]
)
def test_tool_choice(kind: Any, told: str) -> None:
    body = written(call(tools=(WEATHER,), tool_choice=ToolChoice(kind)))
    assert body["tool_choice"] == told
    assert_as_described(body, "mistral/openapi.yaml", "/v1/chat/completions")


@pytest.mark.parametrize(
    ("reasoning", "told", "unsaid"),
    [
        (Reasoning(effort="none"), "none", set()),
        (Reasoning(budget_tokens=0), "none", set()),
        (Reasoning(effort="high"), "high", set()),
        (Reasoning(effort="low"), "high", {"reasoning.effort"}),
        (Reasoning(budget_tokens=64), "high", {"reasoning.budget_tokens"}),
        (Reasoning(adaptive=True), "high", {"reasoning.adaptive"}),
        (Reasoning(shown=False, summary="auto"), None, {"reasoning.shown", "reasoning.summary"}),
    ],
)
def test_reasoning(reasoning: Reasoning, told: Any, unsaid: set[str]) -> None:
    asked = call(reasoning=reasoning)
    assert written(asked).get("reasoning_effort") == told
    assert dropped(asked) == unsaid


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (OutputFormat(kind="text"), {"type": "text"}),
        (OutputFormat(kind="json"), {"type": "json_object"}),
        (
            OutputFormat(kind="schema", schema=SCHEMA),
            {"type": "json_schema", "json_schema": {"name": "response", "schema": SCHEMA}},
        ),
    ],
)
def test_output(output: OutputFormat, told: dict[str, Any]) -> None:
    assert written(call(output=output))["response_format"] == told


def test_fields_of_mistrals_own_clients_are_all_put_back() -> None:
    asked = call("mistral", extra={"brand_new": True}, tools=(HostedTool("mistral", {"a": 1}),))
    body = written(asked)
    assert (body["brand_new"], body["tools"]) == (True, [{"a": 1}])
    assert dropped(asked) == set()


def test_fields_of_tools_that_only_others_know_are_named() -> None:
    tool = msgspec.structs.replace(WEATHER, cache=CacheMark(), extra={"defer_loading": True})
    assert dropped(call(tools=(tool,))) == {"tools.cache", "tools.extra.defer_loading"}
