"""Guardrails of models made of others, and of those that they are made of."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import body_of, fails
from tests.gateway.serving.composed.models import cascade, late, says, settings
from tests.gateway.upstream.scripted import served

CHAT = {"model": "auto", "messages": [{"role": "user", "content": "I am ada@example.com"}]}
MAIL = {"kind": "pii", "find": ["email"]}


@pytest.mark.parametrize("of", ["auto", "small", "strong"])
async def test_what_holds_for_any_of_them_holds_for_all_that_is_asked(of: str) -> None:
    guards = {"mail": {**MAIL, "on": "input", "action": "redact"}}
    async with served(says(small="I don't know.", strong="Four.")) as provider:
        config: dict[str, Any] = settings(
            provider.origin, cascade("small", "strong", by="rules"), guardrails=guards
        )
        config["models"][of]["guardrails"] = ["mail"]
        built = gateway(config, [])
        assert (await ask(built.app, CHAT)).status == 200
        said = [body_of(one)["messages"][-1]["content"] for one in provider.requests]
        assert said == ["I am [EMAIL]"] * 2


async def test_an_answer_that_is_held_back_passes_guardrails_after_a_heartbeat() -> None:
    guards = {"mail": {**MAIL, "on": "output", "action": "redact", "default": True}}
    models = cascade("small", "strong", by="rules")
    models["auto"]["cascade"]["heartbeat_s"] = 0.03
    entries: list[Entry] = []
    slow = late(0.1, fails(500))
    async with served(says(small=slow, strong="Write to bob@example.com now")) as provider:
        built = gateway(settings(provider.origin, models, guardrails=guards), entries)
        told = await ask(built.app, {**CHAT, "stream": True})
        assert told.body.startswith(b":"), "it waited, and was told so"
        assert b"[EMAIL]" in told.body and b"bob@" not in told.body
        assert told.body.endswith(b"data: [DONE]\n\n")
    assert entries[0].outcome == "answered"
