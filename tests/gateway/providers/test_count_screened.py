"""What is counted passes the guardrails and prompts of what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateway.accounts import Limits
from headrace.gateway.accounts.terms import Terms
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import body_of
from tests.gateway.providers.test_count import BODY, MESSAGES, RESPONSES, Counter, settings
from tests.gateway.upstream.scripted import served

CARD = "My card is 4111 1111 1111 1111."
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    MESSAGES: ("anthropic", {"model": "m", "messages": [{"role": "user", "content": CARD}]}),
    RESPONSES: ("openai", {"model": "m", "input": CARD}),
}
CARDS = {"kind": "pii", "find": ["credit_card"], "on": "input", "default": True}


@pytest.mark.parametrize("path", list(ASKED))
async def test_guardrails_look_at_what_is_counted(path: str) -> None:
    kind, body = ASKED[path]
    async with served(Counter()) as provider:
        config = settings(provider, kind=kind)
        built = gateway({**config, "guardrails": {"cards": CARDS}}, [])
        told = await ask(built.app, body, path=path)
        assert told.status == 400 and "guardrail cards" in told.body.decode()
        assert not provider.requests
        built.close()
        redacting = {"cards": {**CARDS, "action": "redact"}}
        built = gateway({**config, "guardrails": redacting}, [])
        told = await ask(built.app, body, path=path)
        built.close()
        assert told.status == 200 and told.headers["x-headrace-guardrails"] == "cards=redact"
        assert b"4111" not in provider.requests[0] and b"[CREDIT_CARD]" in provider.requests[0]


async def test_a_guardrail_that_a_request_names_is_no_providers_business() -> None:
    kind, body = ASKED[MESSAGES]
    async with served(Counter()) as provider:
        on_demand = {**CARDS, "default": False}
        config = {**settings(provider, kind=kind), "guardrails": {"cards": on_demand}}
        built = gateway(config, [])
        named = {**body, "guardrails": ["cards"]}
        assert (await ask(built.app, named, path=MESSAGES)).status == 400
        assert not provider.requests
        clean = {**BODY, "guardrails": ["cards"]}
        told = await ask(built.app, clean, path=MESSAGES)
        built.close()
        assert told.status == 200 and "guardrails" not in body_of(provider.requests[0])


async def test_the_prompt_of_the_file_is_counted_too() -> None:
    async with served(Counter()) as provider:
        version = {"messages": [{"role": "system", "content": "You speak of {{what}} only."}]}
        prompts = {"bridges": {"versions": {"1": version}}}
        built = gateway({**settings(provider, kind="anthropic"), "prompts": prompts}, [])
        named = {"id": "bridges", "version": "1", "variables": {"what": "bridges"}}
        told = await ask(built.app, {**BODY, "prompt": named}, path=MESSAGES)
        built.close()
        assert told.status == 200 and told.headers["x-headrace-prompt"] == "bridges@1"
        sent = body_of(provider.requests[0])
    assert "You speak of bridges only." in str(sent["system"]) and "prompt" not in sent


async def test_a_count_over_the_limit_says_how_long_to_wait() -> None:
    accounts = accounts_of(hierarchy(key=Terms(limits=(Limits(rpm=1),))))
    await accounts.start()
    async with served(Counter()) as provider:
        built = gateway(settings(provider, kind="anthropic"), [], accounts=accounts)
        headers = {"x-api-key": KEY}
        told = [await ask(built.app, BODY, path=MESSAGES, headers=headers) for _ in range(2)]
        built.close()
    assert [one.status for one in told] == [200, 429]
    assert 0 < int(told[1].headers["retry-after"]) <= 61
