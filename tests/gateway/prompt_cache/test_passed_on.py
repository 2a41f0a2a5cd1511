"""Breakpoints of clients reach providers: in every translation that can carry them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.building.dialects import client_sides, provider_side
from headrace.gateway.settings.provider import ProviderSettings
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import body_of, reply
from tests.gateway.upstream.scripted import served

SHORT: dict[str, Any] = {"type": "ephemeral"}
HOUR: dict[str, Any] = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}

# Marks at the tool, the system prompt and the first turn.
ANTHROPIC: dict[str, Any] = {
    "model": "chat",
    "max_tokens": 20,
    "tools": [{"name": "look", "input_schema": SCHEMA, "cache_control": HOUR}],
    "system": [{"type": "text", "text": "Rules.", "cache_control": HOUR}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Long.", "cache_control": SHORT}]},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go on."},
    ],
}
# As OpenRouter and LiteLLM have it: Anthropic's word in parts of OpenAI's dialect.
OPENAI: dict[str, Any] = {
    "model": "chat",
    "max_tokens": 20,
    "tools": [
        {
            "type": "function",
            "function": {"name": "look", "parameters": SCHEMA},
            "cache_control": HOUR,
        }
    ],
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Rules.", "cache_control": HOUR}]},
        *ANTHROPIC["messages"],
    ],
}
CLIENTS = {
    "anthropic": ("/v1/messages", ANTHROPIC),
    "openai-chat": ("/v1/chat/completions", OPENAI),
}


def translated(client: str, dialect: str, vendor: str, model: str) -> dict[str, Any]:
    """What a provider is sent."""
    path, body = CLIENTS[client]
    call = client_sides()[client].read_call(json.dumps(body).encode(), path, {})
    written = provider_side(dialect, vendor, ProviderSettings()).write_call(call, model)
    assert not [one for one in written.dropped if "cache" in one], written.dropped
    found: dict[str, Any] = json.loads(written.body)
    return found


def _text(block: dict[str, Any]) -> tuple[Any, Any]:
    return block.get("text"), block.get("cache_control")


@pytest.mark.parametrize("client", CLIENTS)
def test_to_anthropic(client: str) -> None:
    sent = translated(client, "anthropic", "anthropic", "claude-sonnet-4-5")
    assert [one["cache_control"] for one in sent["tools"]] == [HOUR]
    assert [_text(one) for one in sent["system"]] == [("Rules.", HOUR)]
    assert [_text(one) for one in sent["messages"][0]["content"]] == [("Long.", SHORT)]
    assert json.dumps(sent).count("cache_control") == 3


@pytest.mark.parametrize("client", CLIENTS)
def test_to_bedrock_as_cache_points(client: str) -> None:
    sent = translated(client, "bedrock", "aws-bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0")
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert sent["toolConfig"]["tools"][1] == hour
    assert sent["system"] == [{"text": "Rules."}, hour]
    assert sent["messages"][0]["content"] == [
        {"text": "Long."}, {"cachePoint": {"type": "default"}},
    ]  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
def test_to_openrouter_in_anthropics_words(client: str) -> None:
    sent = translated(client, "openai-chat", "openrouter", "anthropic/claude-sonnet-4.5")
    system, first = sent["messages"][:2]
    assert [_text(one) for one in system["content"]] == [("Rules.", HOUR)]
    assert [_text(one) for one in first["content"]] == [("Long.", SHORT)]
    (tool,) = sent["tools"]
    assert HOUR in (tool.get("cache_control"), tool["function"].get("cache_control"))


async def test_through_a_gateway_the_body_of_the_same_dialect_is_not_touched() -> None:
    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        told = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        writer.write(reply(200, told))

    async with served(answer) as provider:
        base = str(provider.origin)
        config = {
            "providers": {"a": {"base_url": f"{base}/v1", "dialect": "anthropic"}},
            "models": {"chat": {"targets": [{"model": "a/claude-x"}]}},
        }
        built = gateway(config, [])
        for path, body in CLIENTS.values():
            told = await ask(built.app, body, path=path)
            assert told.status == 200
        same, other = (body_of(one) for one in provider.requests)
        assert same == {**ANTHROPIC, "model": "claude-x"}
        assert [one["cache_control"] for one in other["system"]] == [HOUR]
        assert other["tools"][0]["cache_control"] == HOUR
