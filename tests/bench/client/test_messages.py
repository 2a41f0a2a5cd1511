"""Conversations with tools, in the words of Anthropic and of Ollama."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.bench.client.messages import anthropic_body, ollama_messages
from headrace.errors import ConfigError


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


TALK: list[dict[str, Any]] = [
    {"role": "developer", "content": "Use tools."},
    {"role": "user", "content": "How warm is it?"},
    {
        "role": "assistant",
        "content": "I look.",
        "refusal": None,
        "tool_calls": [call("c1", "weather", '{"town": "Bern"}'), call("c2", "clock", "")],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "11"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noon"}]},
    {"role": "assistant", "content": "Eleven degrees."},
]


def test_anthropic() -> None:
    assert anthropic_body(TALK) == {
        "system": "Use tools.",
        "messages": [
            {"role": "user", "content": "How warm is it?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"town": "Bern"}},
                    {"type": "tool_use", "id": "c2", "name": "clock", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "11"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [{"type": "text", "text": "noon"}],
                    },
                ],
            },
            {"role": "assistant", "content": "Eleven degrees."},
        ],
    }


def test_a_call_without_words_is_the_call_alone() -> None:
    silent = [{"role": "assistant", "content": None, "tool_calls": [call("c", "clock", "{}")]}]
    (said,) = anthropic_body(silent)["messages"]
    assert [part["type"] for part in said["content"]] == ["tool_use"]


def test_ollama() -> None:
    assert ollama_messages(TALK) == [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "How warm is it?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"function": {"name": "weather", "arguments": {"town": "Bern"}}},
                {"function": {"name": "clock", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "11", "tool_name": "weather"},
        {"role": "tool", "content": "noon", "tool_name": "clock"},
        {"role": "assistant", "content": "Eleven degrees."},
    ]


@pytest.mark.parametrize("translate", [anthropic_body, ollama_messages])
@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "function", "name": "f", "content": "1"}, "the role 'function' of a message"),
        ({"content": "1"}, "the role None of a message"),
        ({"role": "user", "name": "Ann", "content": "1"}, "name of a message of the role user"),
        (
            {"role": "assistant", "content": "", "function_call": {"name": "f"}},
            "function_call of a message of the role assistant",
        ),
        ({"role": "user", "content": "", "tool_calls": [call("c", "f", "{}")]}, "tool_calls of"),
        (
            {"role": "tool", "tool_call_id": "c", "content": "1"},
            "'c' does not belong to an earlier call",
        ),
        (
            {"role": "assistant", "tool_calls": [call("c", "f", "[1]")]},
            "the arguments '[1]' of a call are not an object",
        ),
        ({"role": "assistant", "tool_calls": ["f"]}, "the call 'f' has no function or no id"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    translate: Any, message: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        translate([message])
    assert told in str(caught.value)
    assert "omit it" in str(caught.value)
