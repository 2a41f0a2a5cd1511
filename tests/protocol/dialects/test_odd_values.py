"""A value of any type in any place of a request is read or refused, and never a fault of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects import (
    anthropic,
    bedrock,
    ollama,
    openai_chat,
    openai_completions,
    openai_responses,
)
from headrace.protocol.neutral.dialect import ClientSide, DamagedReplyError, ProviderSide

# Lists and objects above all: they are in no set, and asking whether they are raises.
ODD: tuple[Any, ...] = ([[]], {"a": []}, [], {}, 10**30, -1.5, True, None, "x")
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {
    "type": "object", "required": ["a"], "additionalProperties": False,
    "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [{"type": "integer"}]}},
}  # fmt: skip
FUNCTION = {"name": "f", "description": "d", "strict": True, "parameters": SCHEMA}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "user", "content": [
            {"type": "text", "text": "t", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}},
        ]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "r"}],
         "reasoning_details": [{"type": "reasoning.text", "text": "t", "format": "x"}],
         "tool_calls": [
             {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
             {"id": "d", "type": "custom", "custom": {"name": "g", "input": "i"}},
         ]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "reasoning": {"effort": "low", "max_tokens": 9}, "stop": ["a"], "logit_bias": {"1": 2},
    "stream_options": {"include_usage": True}, "modalities": ["text"], "service_tier": "auto",
}  # fmt: skip
RESPONSES = {
    "model": "m",
    "input": [
        {"role": "user", "content": [
            {"type": "input_text", "text": "t"},
            {"type": "input_image", "image_url": PNG, "detail": "low"},
            {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA"},
            {"type": "odd", "x": 1},
        ]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "a", "logprobs": [],
             "annotations": [{"type": "url_citation", "url": "u", "title": "t"}]},
            {"type": "refusal", "refusal": "r"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}],
         "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "AAAA"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": PNG},
        ]},
    ],
    "tools": [{"type": "function", **FUNCTION}, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"}, "service_tier": "auto", "truncation": "auto",
}  # fmt: skip
MESSAGES = {
    "model": "m", "max_tokens": 2000,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}},
            {"type": "document", "citations": {"enabled": True},
             "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
            {"type": "search_result", "source": "s", "content": [{"type": "text", "text": "x"}]},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "redacted_thinking", "data": "AA"},
            {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "is_error": True,
             "content": [{"type": "text", "text": "r"}]},
        ]},
    ],
    "tools": [{"name": "f", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "w"}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
}  # fmt: skip
OLLAMA = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "t", "images": ["iVBORw0KGgo="]},
        {"role": "assistant", "content": "a", "thinking": "t",
         "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "tool", "tool_name": "f", "content": "r"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}], "format": SCHEMA, "think": "low",
    "options": {"temperature": 0.5, "stop": ["a"], "num_ctx": 5}, "keep_alive": "5m",
}  # fmt: skip
COMPLETIONS = {
    "model": "m", "prompt": ["p"], "stop": ["a"], "logit_bias": {"1": 2}, "logprobs": 2,
    "stream_options": {"include_usage": True}, "n": 1,
}  # fmt: skip
_GENERIC = openai_chat.OpenAIChatProvider(openai_chat.PRESETS["openai"])


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all that is in it."""
    yield at
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, one in inside:
        yield from places(one, (*at, key))


def put(value: Any, at: tuple[Any, ...], odd: Any) -> Any:
    """The same with `odd` in one place."""
    if not at:
        return odd
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[at[0]] = put(value[at[0]], at[1:], odd)
    return changed


@pytest.mark.parametrize(
    ("client", "path", "request_", "provider"),
    [
        (openai_chat.CLIENT, "/v1/chat/completions", CHAT, _GENERIC),
        (openai_responses.CLIENT, "/v1/responses", RESPONSES, openai_responses.PROVIDER),
        (anthropic.CLIENT, "/v1/messages", MESSAGES, anthropic.PROVIDER),
        (ollama.CLIENT, "/api/chat", OLLAMA, ollama.PROVIDER),
        (openai_completions.CLIENT, "/v1/completions", COMPLETIONS, _GENERIC),
    ],
    ids=["chat", "responses", "messages", "ollama", "completions"],
)
def test_any_value_in_a_request_is_read_or_refused(
    client: ClientSide, path: str, request_: Any, provider: ProviderSide
) -> None:
    provider.write_call(client.read_call(json.dumps(request_).encode(), path, {}), "m")
    refused = 0
    for at in places(request_):
        for odd in ODD:
            body = json.dumps(put(request_, at, odd)).encode()
            try:
                provider.write_call(client.read_call(body, path, {}), "m")
            except RequestError:
                refused += 1
            except Exception as error:
                pytest.fail(f"{at} as {odd!r}: {error!r}")
    assert refused


def test_a_part_without_a_type_of_text_is_refused_by_its_name() -> None:
    part = {"type": [[]], "text": "t"}
    body = json.dumps({"model": "m", "input": [{"role": "user", "content": [part]}]}).encode()
    with pytest.raises(RequestError, match=r"input\[0\]\.content\[0\]\.type") as raised:
        openai_responses.CLIENT.read_call(body, "/v1/responses", {})
    assert raised.value.param == "input[0].content[0].type"


def test_any_value_in_a_reply_of_bedrock_is_read_or_damage() -> None:
    reply = {
        "output": {"message": {"role": "assistant", "content": [
            {"text": "t"}, {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}},
            {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}},
        ]}},
        "stopReason": "end_turn", "metrics": {"latencyMs": 1}, "serviceTier": {"type": "default"},
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "additionalModelResponseFields": {"stop_sequence": "a"},
    }  # fmt: skip
    for at in places(reply):
        for odd in ODD:
            try:
                bedrock.PROVIDER.read_reply(json.dumps(put(reply, at, odd)).encode())
            except DamagedReplyError:
                continue
            except Exception as error:
                pytest.fail(f"{at} as {odd!r}: {error!r}")
