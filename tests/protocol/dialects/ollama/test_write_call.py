"""What an Ollama server is asked, whoever asks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama import CLIENT, PROVIDER
from headrace.protocol.neutral.call import (
    ChatCall,
    HostedTool,
    Message,
    OutputFormat,
    Reasoning,
    Tool,
    ToolChoice,
)
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.ollama.samples import (
    WEATHER_TOOL,
    assert_as_described,
    body,
    call,
)

PNG = "iVBORw0KGgoAAAANSUhEUg=="


def written(asked: ChatCall) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(PROVIDER.write_call(asked, "qwen3").body)
    return told


def said(*parts: Part, role: Any = "user") -> tuple[dict[str, Any], tuple[str, ...]]:
    asked = call(messages=(Message(role=role, parts=parts),))
    told = PROVIDER.write_call(asked, "qwen3")
    return json.loads(told.body)["messages"][0], told.dropped


def test_everything_that_ollama_has_words_for() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    asked = call(
        instructions=(Text(text="Be brief."), Text(text="Be kind.")),
        messages=(
            Message(role="user", parts=(Text(text="Weather?"),)),
            Message(
                role="assistant",
                parts=(
                    Thinking(text="Hm."),
                    Text(text="I "),
                    Text(text="look."),
                    ToolCall(id="c1", name="get_weather", arguments='{"city":\n "Oslo"}'),
                    ToolCall(id="c2", name="now", arguments=""),
                ),
            ),
            Message(
                role="tool",
                parts=(
                    ToolResult(call_id="c2", content=(Text(text="noon"),)),
                    ToolResult(
                        call_id="c1",
                        content=(Text(text="cold"), Media(kind="image", data=PNG)),
                    ),
                ),
            ),
            Message(role="user", parts=(Text(text="In French."),), extra={"role": "system"}),
        ),
        tools=(Tool(name="get_weather", description="W", parameters=parameters), Tool(name="now")),
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=0.3,
        repetition_penalty=1.2,
        seed=3,
        stop=("a", "b"),
        logprobs=True,
        top_logprobs=2,
        output=OutputFormat(kind="schema", schema={"type": "object"}, name="x", strict=True),
        reasoning=Reasoning(effort="high"),
    )
    told = written(asked)
    assert told == {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "I look.",
                "thinking": "Hm.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "function": {
                            "index": 0,
                            "name": "get_weather",
                            "arguments": {"city": "Oslo"},
                        },
                    },
                    {"id": "c2", "function": {"index": 1, "name": "now", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "noon", "tool_name": "now", "tool_call_id": "c2"},
            {
                "role": "tool",
                "content": "cold",
                "tool_name": "get_weather",
                "tool_call_id": "c1",
                "images": [PNG],
            },
            {"role": "system", "content": "In French."},
        ],
        "stream": False,
        "tools": [
            {
                "type": "function",
                "function": {"name": "get_weather", "description": "W", "parameters": parameters},
            },
            {
                "type": "function",
                "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
            },
        ],
        "format": {"type": "object"},
        "think": "high",
        "logprobs": True,
        "top_logprobs": 2,
        "options": {
            "temperature": 0.5,
            "top_p": 0.9,
            "min_p": 0.1,
            "repeat_penalty": 1.2,
            "presence_penalty": 0.3,
            "frequency_penalty": 0.2,
            "num_predict": 9,
            "top_k": 4,
            "seed": 3,
            "stop": ["a", "b"],
        },
    }
    assert PROVIDER.write_call(asked, "qwen3").dropped == ()
    assert_as_described(told, "ChatRequest")


def test_what_ollama_has_no_words_for_is_named() -> None:
    asked = call(
        tools=(
            Tool(name="f", strict=True, cache=CacheMark()),
            HostedTool("openai_responses", {"type": "web_search"}),
        ),
        tool_choice=ToolChoice("one", "f"),
        parallel_tool_calls=False,
        logit_bias={"5": 1.0},
        choices=2,
        modalities=("text", "audio"),
        user="u",
        metadata={"a": "b"},
        service_tier="flex",
        output=OutputFormat(kind="schema", schema={}, description="d"),
        reasoning=Reasoning(effort="minimal", budget_tokens=5, summary="auto", shown=False),
        extra={"store": True, "options": {"num_ctx": 1}},
        messages=(
            Message(
                role="user",
                parts=(
                    Text(text="x", cache=CacheMark()),
                    Opaque("anthropic", {}),
                    Media(kind="image", data=PNG, detail="low"),
                ),
                name="Ada",
                extra={"y": 1},
            ),
            Message(role="tool", parts=(ToolResult(call_id="c", content=(), is_error=True),)),
        ),
    )
    assert sorted(PROVIDER.write_call(asked, "m").dropped) == sorted(
        [
            "tools.web_search",
            "tools.strict",
            "cache",
            "tool_choice",
            "parallel_tool_calls",
            "logit_bias",
            "choices",
            "modalities",
            "user",
            "metadata",
            "service_tier",
            "output.description",
            "reasoning.effort",
            "reasoning.budget_tokens",
            "reasoning.summary",
            "reasoning.shown",
            "extra.store",
            "extra.options",
            "messages.detail",
            "messages.anthropic",
            "messages.name",
            "messages.extra.y",
            "messages.is_error",
        ]
    )
    assert "options" not in written(asked)


@pytest.mark.parametrize(
    ("reasoning", "think"),
    [
        (Reasoning(effort="none"), False),
        (Reasoning(budget_tokens=0), False),
        (Reasoning(budget_tokens=1024), True),
        (Reasoning(adaptive=True), True),
        (Reasoning(effort="low", budget_tokens=9), "low"),
        (Reasoning(effort="minimal"), "low"),
        (Reasoning(effort="xhigh"), "max"),
        (Reasoning(shown=True), True),
        (Reasoning(shown=False), None),
        (Reasoning(), None),
        (None, None),
    ],
)
def test_think(reasoning: Reasoning | None, think: object) -> None:
    assert written(call(reasoning=reasoning)).get("think") == think


def test_tool_choice() -> None:
    tools = (Tool(name="f"),)
    assert "tools" not in written(call(tools=tools, tool_choice=ToolChoice("none")))
    auto = PROVIDER.write_call(call(tools=tools, tool_choice=ToolChoice("auto")), "m")
    assert auto.dropped == ()
    needed = PROVIDER.write_call(call(tools=tools, tool_choice=ToolChoice("required")), "m")
    assert needed.dropped == ("tool_choice",)
    assert json.loads(needed.body)["tools"]


def test_thoughts_of_others_are_left_out_and_none_is_dropped() -> None:
    told, dropped = said(
        Thinking(text="mine"),
        Thinking(text="theirs", signature=Signature("anthropic", "s")),
        Thinking(text="", signature=Signature("anthropic", "s"), redacted=True),
        Text(text="a"),
        Refusal(" no"),
        role="assistant",
    )
    assert told == {"role": "assistant", "content": "a no", "thinking": "mine"}
    assert dropped == ()


def test_texts_of_a_user_are_paragraphs_and_images_stand_beside_them() -> None:
    image = Media(kind="image", data=PNG, mime="image/png")
    told, _ = said(Text(text="a"), image, Text(text="b"))
    assert told == {"role": "user", "content": "a\n\nb", "images": [PNG]}


@pytest.mark.parametrize(
    ("part", "remedy"),
    [
        (Media(kind="image", url="https://x.org/a.png"), "base64"),
        (Media(kind="image", file_id="file-1"), "base64"),
        (Media(kind="audio", data="AAAA"), "no audio"),
        (Media(kind="document", data="AAAA"), "no document"),
        (ToolCall(id="c", name="f", arguments="[1]"), "not a JSON object"),
        (ToolCall(id="c", name="f", arguments='{"a":'), "not a JSON object"),
        (ToolCall(id="c", name="f", arguments='{"a":' * 10**5), "not a JSON object"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_cannot_be_said_at_all_is_refused(part: Part, remedy: str) -> None:
    with pytest.raises(RequestError, match=remedy) as error:
        said(part, role="assistant")
    assert error.value.param == "messages[0]"


def test_arguments_keep_their_numbers() -> None:
    arguments = '{"a": 1.10, "b": 1E2, "c": 123456789012345678901, "d": "\\u00e9"}'
    part = ToolCall(id="c", name="f", arguments=arguments)
    asked = call(messages=(Message(role="assistant", parts=(part,)),))
    assert arguments.encode() in PROVIDER.write_call(asked, "m").body


def test_the_same_dialect_loses_nothing() -> None:
    told: dict[str, Any] = {
        "model": "llama3.2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is it?", "images": [PNG], "x": 1},
            {
                "role": "assistant",
                "content": "I look.",
                "thinking": "Hm.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "function": {"index": 0, "name": "f", "arguments": {"a": 1}},
                    }
                ],
            },
            {"role": "tool", "content": "ok", "tool_name": "f", "tool_call_id": "c1"},
            {"role": "system", "content": "In French."},
        ],
        "stream": True,
        "tools": [WEATHER_TOOL],
        "format": {"type": "object"},
        "think": True,
        "logprobs": True,
        "top_logprobs": 3,
        "options": {"num_ctx": 8192, "temperature": 0, "num_predict": -1, "stop": ["a"]},
        "keep_alive": -1,
        "truncate": False,
        "shift": True,
        "x_unknown": {"a": [1]},
    }
    asked = CLIENT.read_call(json.dumps(told).encode(), "/api/chat", {})
    again = PROVIDER.write_call(asked, "llama3.2")
    assert json.loads(again.body) == told
    assert again.dropped == ()


@pytest.mark.parametrize("think", [True, False, "low", "medium", "high", "max"])
def test_think_comes_back_as_it_was(think: object) -> None:
    asked = CLIENT.read_call(body(think=think), "/api/chat", {})
    assert written(asked)["think"] == think


@pytest.mark.parametrize("depth", [300, 900, 990, 5000])
def test_schemas_at_any_depth_are_written_or_refused(depth: int) -> None:
    schema = b'{"a":' * depth + b"{}" + b"}" * depth
    raw = body(format="json").replace(b'"json"', schema)
    try:
        asked = CLIENT.read_call(raw, "/api/chat", {})
        assert schema in PROVIDER.write_call(asked, "m").body
    except RequestError as error:
        assert "deep" in str(error)
        assert depth > 300
