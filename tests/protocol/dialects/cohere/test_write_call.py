"""What Cohere is asked, whoever asks."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    OutputFormat,
    Reasoning,
    ToolChoice,
)
from headrace.protocol.neutral.part import (
    CacheMark,
    Text,
)
from tests.protocol.dialects.api_description import assert_as_described
from tests.protocol.dialects.cohere.samples import TIME, WEATHER, call, written

pytestmark = pytest.mark.usefixtures("api_descriptions")

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def dropped(asked: ChatCall) -> set[str]:
    return set(PROVIDER.write_call(asked, "command-a").dropped)


def test_every_field_that_cohere_knows() -> None:
    asked = call(
        instructions=(Text(text="Be brief."),),
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        frequency_penalty=0.25,
        presence_penalty=0.75,
        seed=7,
        stop=("END", "STOP"),
        logprobs=True,
        output=OutputFormat(kind="schema", schema=SCHEMA, name="person", strict=True),
        reasoning=Reasoning(budget_tokens=512),
        stream=True,
        extra={"safety_mode": "STRICT", "citation_options": {"mode": "FAST"}, "priority": 3},
    )
    body = written(asked)
    assert body == {
        "model": "command-a",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "max_tokens": 9,
        "temperature": 0.5,
        "p": 0.9,
        "k": 40,
        "frequency_penalty": 0.25,
        "presence_penalty": 0.75,
        "seed": 7,
        "stop_sequences": ["END", "STOP"],
        "logprobs": True,
        "response_format": {"type": "json_object", "json_schema": SCHEMA},
        "thinking": {"type": "enabled", "token_budget": 512},
        "safety_mode": "STRICT",
        "citation_options": {"mode": "FAST"},
        "priority": 3,
    }
    assert dropped(asked) == set()
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")


def test_what_cohere_cannot_be_told_is_named() -> None:
    asked = call(
        min_p=0.1,
        repetition_penalty=1.1,
        logit_bias={"1": 2.0},
        choices=2,
        top_logprobs=3,
        modalities=("text", "audio"),
        user="u",
        metadata={"a": "b"},
        service_tier="flex",
        parallel_tool_calls=False,
        tools=(HostedTool("anthropic", {"type": "web_search"}),),
        extra={"top_a": 0.2, "thinking": {"type": "enabled", "budget_tokens": 5}},
    )
    assert dropped(asked) == {
        "min_p",
        "repetition_penalty",
        "logit_bias",
        "choices",
        "top_logprobs",
        "modalities",
        "user",
        "metadata",
        "service_tier",
        "parallel_tool_calls",
        "tools.web_search",
        "extra.top_a",
        "extra.thinking",
    }
    assert set(written(asked)) == {"model", "messages", "stream"}


def test_what_asks_for_nothing_is_not_named() -> None:
    asked = call(choices=1, logprobs=False, modalities=("text",), parallel_tool_calls=True)
    assert dropped(asked) == set()


def test_values_beyond_a_range_are_written_as_the_nearest_and_named() -> None:
    asked = call(temperature=1.6, top_p=1.0, top_k=900, frequency_penalty=-1.0, presence_penalty=2)
    body = written(asked)
    assert [body[name] for name in ("temperature", "p", "k")] == [1, 0.99, 500]
    assert [body[name] for name in ("frequency_penalty", "presence_penalty")] == [0, 1]
    fields = {"temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty"}
    assert dropped(asked) == fields
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")
    assert written(call(top_k=-1))["k"] == 0 and dropped(call(top_k=-1)) == set()


def test_a_negative_seed_is_another_one_and_always_the_same() -> None:
    seed = written(call(seed=-5))["seed"]
    assert seed == written(call(seed=-5))["seed"] != written(call(seed=-6))["seed"]
    assert 0 <= seed < 2**63


@pytest.mark.parametrize(
    ("kind", "told"), [("auto", None), ("none", "NONE"), ("required", "REQUIRED")]
)
def test_tool_choice(kind: Any, told: str | None) -> None:
    body = written(call(tools=(WEATHER, TIME), tool_choice=ToolChoice(kind)))
    assert body.get("tool_choice") == told
    assert [one["function"]["name"] for one in body["tools"]] == ["get_weather", "get_time"]
    assert_as_described(body, "cohere/cohere-openapi.yaml", "/v2/chat")


def test_one_named_tool_is_the_only_one_and_required() -> None:
    asked = call(tools=(WEATHER, TIME), tool_choice=ToolChoice("one", "get_time"))
    body = written(asked)
    assert [one["function"]["name"] for one in body["tools"]] == ["get_time"]
    assert body["tool_choice"] == "REQUIRED"
    assert dropped(asked) == set()


def test_strict_tools_are_all_or_none() -> None:
    strict = msgspec.structs.replace(WEATHER, strict=True)
    assert written(call(tools=(strict, strict)))["strict_tools"] is True
    mixed = call(tools=(strict, TIME))
    assert "strict_tools" not in written(mixed)
    assert dropped(mixed) == {"tools.strict"}
    own = call(tools=(strict, TIME), extra={"strict_tools": True})
    assert written(own)["strict_tools"] is True and dropped(own) == set()


@pytest.mark.parametrize(
    ("reasoning", "told", "unsaid"),
    [
        (Reasoning(effort="none"), {"type": "disabled"}, set()),
        (Reasoning(budget_tokens=0), {"type": "disabled"}, set()),
        (Reasoning(effort="high"), {"type": "enabled"}, {"reasoning.effort"}),
        (
            Reasoning(effort="low", budget_tokens=64),
            {"type": "enabled", "token_budget": 64},
            set(),
        ),
        (Reasoning(adaptive=True), {"type": "enabled"}, {"reasoning.adaptive"}),
        (
            Reasoning(shown=False, summary="auto"),
            None,
            {"reasoning.shown", "reasoning.summary"},
        ),
    ],
)
def test_reasoning(reasoning: Reasoning, told: Any, unsaid: set[str]) -> None:
    asked = call(reasoning=reasoning)
    assert written(asked).get("thinking") == told
    assert dropped(asked) == unsaid


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (OutputFormat(kind="text"), {"type": "text"}),
        (OutputFormat(kind="json"), {"type": "json_object"}),
    ],
)
def test_output(output: OutputFormat, told: dict[str, Any]) -> None:
    assert written(call(output=output))["response_format"] == told


def test_fields_of_coheres_own_clients_are_all_put_back() -> None:
    asked = call("cohere", extra={"raw_prompting": True, "documents": ["d"]})
    assert json.loads(PROVIDER.write_call(asked, "m").body)["raw_prompting"] is True
    assert dropped(asked) == set()


def test_fields_of_tools_that_only_others_know_are_named() -> None:
    tool = msgspec.structs.replace(WEATHER, cache=CacheMark(), extra={"defer_loading": True})
    assert dropped(call(tools=(tool,))) == {"tools.cache", "tools.extra.defer_loading"}
