"""The line about itself that Claude Code puts before its system text: for Anthropic alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, body_of
from tests.gateway.upstream.scripted import served

LINE = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch={};"


def asked(turn: int) -> dict[str, Any]:
    system = [
        {"type": "text", "text": LINE.format(turn)},
        {"type": "text", "text": "You help."},
    ]
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": "chat", "max_tokens": 9, "system": system, "messages": messages}


async def sent(dialect: str, turn: int) -> dict[str, Any]:
    """The body that a provider gets of a turn. (It answers as OpenAI, whatever it is asked.)"""
    async with served(answers()) as scripted:
        provider = {"base_url": str(scripted.origin), "api_key": "k", "dialect": dialect}
        made = gateway({"providers": {"p": provider}, "models": {"chat": ["p/m"]}}, [])
        try:
            await ask(made.app, asked(turn), path="/v1/messages")
        finally:
            made.close()
        return body_of(scripted.requests[0])


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "gemini", "cohere"])
async def test_turns_begin_alike_in_another_dialect(dialect: str) -> None:
    first = await sent(dialect, 1)
    assert first == await sent(dialect, 2)
    assert "You help." in str(first) and "billing" not in str(first)


async def test_anthropic_gets_the_line_as_it_came() -> None:
    assert (await sent("anthropic", 1))["system"] == asked(1)["system"]
