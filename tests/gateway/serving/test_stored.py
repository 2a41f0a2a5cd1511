"""What a key stored at a provider is no other key's, though both use the provider's one key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.providers.test_responses_passed_on import both, settings
from tests.gateway.test_accounts_of_the_file import KEY, SOURCES, accounts
from tests.gateway.upstream.scripted import served

ALICE, BOB, MASTER = KEY, "hr-bobs-key-0000000000000000000000000000", "hr-master"
HELLO = {"model": "m1", "input": "hello"}


async def made(provider: Any, entries: list[Entry], **access: Any) -> Gateway:
    keys = {"alice": {"key": "env:KEY"}, "bob": {"key": BOB}}
    config = {
        **settings(provider, responses=True),
        "access": {"master_key": "env:MASTER", "keys": keys, **access},
    }
    book = await accounts(config)
    return gateway(config, entries, accounts=book, environ=dict(SOURCES.environ))


async def asked(built: Gateway, key: str, path: str = "/v1/responses", **body: Any) -> Told:
    headers = {"authorization": f"Bearer {key}"}
    return await ask(built.app, {**HELLO, **body}, path=path, headers=headers)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_is_of_the_key_that_was_told_it(streamed: bool) -> None:
    entries: list[Entry] = []
    async with served(both) as provider:
        built = await made(provider, entries)
        assert (await asked(built, ALICE, previous_response_id="resp_1")).status == 400
        assert (await asked(built, ALICE, stream=streamed)).status == 200
        sent = len(provider.requests)
        told = await asked(built, BOB, previous_response_id="resp_1")
        assert told.status == 400
        assert told.json["error"]["param"] == "previous_response_id"
        assert told.json["error"]["code"] == "stored_id_not_allowed"
        assert "access.stored_ids" in told.json["error"]["message"]
        assert len(provider.requests) == sent
        assert entries[-1].outcome == "refused"
        for key in (ALICE, MASTER):
            assert (await asked(built, key, previous_response_id="resp_1")).status == 200
        built.close()


@pytest.mark.parametrize(
    "body",
    [
        {"conversation": "conv_a"},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-a"}]}]},
    ],
)
async def test_what_the_gateway_tells_nobody_is_refused_unless_the_file_allows_it(
    body: dict[str, Any],
) -> None:
    async with served(both) as provider:
        built = await made(provider, [])
        assert (await asked(built, BOB, **body)).status == 400
        assert (await asked(built, BOB, path="/v1/responses/input_tokens", **body)).status == 400
        assert provider.requests == []
        built.close()
        built = await made(provider, [], stored_ids="any")
        assert (await asked(built, BOB, **body)).status == 200
        assert (await asked(built, BOB, previous_response_id="resp_x")).status == 200
        built.close()


async def test_files_of_other_dialects_are_refused_too() -> None:
    content = [{"type": "file", "file": {"file_id": "file-a"}}]
    body = {"model": "m1", "messages": [{"role": "user", "content": content}]}
    async with served(answers()) as provider:
        built = await made(provider, [])
        headers = {"authorization": f"Bearer {BOB}"}
        told = await ask(built.app, body, headers=headers)
        assert told.status == 400 and told.json["error"]["param"] == "file_id"
        source = {"type": "document", "source": {"type": "file", "file_id": "file_a"}}
        anthropic = {**body, "max_tokens": 9, "messages": [{"role": "user", "content": [source]}]}
        told = await ask(built.app, anthropic, path="/v1/messages", headers=headers)
        assert told.status == 400 and "file_id" in told.json["error"]["message"]
        assert provider.requests == []
        built.close()


async def test_the_id_is_the_keys_before_it_can_be_used() -> None:
    async with served(both) as provider:
        built = await made(provider, [])

        async def goes_on() -> int:
            first = await asked(built, ALICE)
            return (await asked(built, ALICE, previous_response_id=first.json["id"])).status

        assert await asyncio.gather(*(goes_on() for _ in range(5))) == [200] * 5
        built.close()
