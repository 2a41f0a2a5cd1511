"""Calls that are refused, and those that only a provider with a memory can answer."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_responses import CLIENT, needs_state
from tests.protocol.dialects.openai_responses.samples import PATH, read


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ()),
        ({"background": False, "store": True}, ()),
        ({"previous_response_id": "resp_1"}, ("previous_response_id",)),
        ({"conversation": {"id": "conv_1"}}, ("conversation",)),
        ({"background": True, "prompt": {"id": "pmpt_1"}}, ("background", "prompt")),
        ({"input": [{"type": "item_reference", "id": "x"}]}, ("item_reference",)),
        ({"input": [{"id": "x"}]}, ("item_reference",)),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, ("compaction",)),
    ],
)
def test_needs_state(fields: dict[str, Any], names: tuple[str, ...]) -> None:
    assert needs_state(read(**fields)) == names


def test_input_may_be_missing_where_the_provider_has_it() -> None:
    assert read(input=None, previous_response_id="resp_1").messages == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 1}, "model"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "input[0].content[0].input_audio",
        ),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"input": [{"type": "function_call_output", "output": "c"}]}, "input[0].call_id"),
        (
            {
                "input": [
                    {"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}
                ]
            },
            "input[0].output[0].type",
        ),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "summary": [{}]}]}, "input[0].summary[0].text"),
        ({"input": [{"type": ["x"]}]}, "input[0].type"),
        ({"instructions": 1}, "instructions"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_output_tokens": 10**30}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"store": 1}, "store"),
        ({"include": "x"}, "include"),
        ({"include": [1]}, "include[0]"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"tools": {}}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": "x"}]},
            "tools[0].parameters",
        ),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": 1}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"text": "x"}, "text"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"reasoning": {"effort": 1}}, "reasoning.effort"),
        ({"previous_response_id": 1}, "previous_response_id"),
    ],
)
def test_a_field_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b'"x"', b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(RequestError):
        CLIENT.read_call(body, PATH, {})
