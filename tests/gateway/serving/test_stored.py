"""What a key stored at a provider is no other key's, though both use the provider's one key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.redis_counters import RedisCounters
from headrace.gateway.accounts.redis_link import connect
from headrace.gateway.accounts.stored_ids import StoredIds
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.stored import MOST_IDS
from tests.gateway.accounts.parts import Clock, random_bytes
from tests.gateway.accounts.redis_server import redis_program
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, answers, framed, reply
from tests.gateway.providers.test_responses_passed_on import both, settings
from tests.gateway.test_accounts_of_the_file import KEY, SOURCES, accounts
from tests.gateway.upstream.scripted import served

ALICE, BOB, MASTER = KEY, "hr-bobs-key-0000000000000000000000000000", "hr-master"
KEYS = {"alice": {"key": "env:KEY"}, "bob": {"key": BOB}}
HELLO = {"model": "m1", "input": "hello"}


async def made(
    provider: Any,
    entries: list[Entry],
    *,
    book: Accounts | None = None,
    dialect: str = "",
    **access: Any,
) -> Gateway:
    given = {"dialect": dialect} if dialect else {"responses": True}
    config = {
        **settings(provider, **given),
        "access": {"master_key": "env:MASTER", "keys": KEYS, **access},
    }
    book = book or await accounts(config)
    return gateway(config, entries, accounts=book, environ=dict(SOURCES.environ))


def says(value: dict[str, Any]) -> Callable[..., Awaitable[None]]:
    """A provider with one answer."""

    async def answer(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, value))

    return answer


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
        {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"type": "image_generation_call", "id": "ig_1"}]},
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


async def test_more_ids_than_a_context_holds_are_not_even_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[int] = []
    told_to = StoredIds.told

    async def told(self: StoredIds, key_id: str, ids: Collection[str]) -> set[str]:
        looked_up.append(len(ids))
        return await told_to(self, key_id, ids)

    monkeypatch.setattr(StoredIds, "told", told)
    points = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(MOST_IDS)]
    async with served(both) as provider:
        built = await made(provider, [])
        # One that is there twice counts once.
        refused = await asked(built, BOB, input=points * 2)
        assert (refused.status, refused.json["error"]["code"]) == (400, "stored_id_not_allowed")
        one_more = {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}
        for path in ("/v1/responses", "/v1/responses/input_tokens"):
            refused = await asked(built, BOB, path, input=points, **one_more)
            error = refused.json["error"]
            assert (refused.status, error["code"]) == (400, "too_many_stored_ids")
            assert f"{MOST_IDS:,}" in error["message"] and "cntr_1" in error["message"]
        assert looked_up == [MOST_IDS]
        assert provider.requests == []
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


@pytest.mark.parametrize("streamed", [False, True])
async def test_items_of_an_answer_are_of_the_key_that_was_told_them(streamed: bool) -> None:
    points = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "go on"}]
    async with served(both) as provider:
        built = await made(provider, [])
        assert (await asked(built, ALICE, input=points)).status == 400
        assert (await asked(built, ALICE, stream=streamed)).status == 200
        assert (await asked(built, ALICE, input=points)).status == 200
        told = await asked(built, BOB, input=points)
        assert (told.status, told.json["error"]["param"]) == (400, "item_reference")
        built.close()


async def test_what_is_not_stored_is_not_remembered() -> None:
    async with served(both) as provider:
        built = await made(provider, [])
        assert (await asked(built, ALICE, store=False)).status == 200
        assert (await asked(built, ALICE, previous_response_id="resp_1")).status == 400
        built.close()


async def test_a_container_is_of_the_key_whose_tool_ran_in_it() -> None:
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    output = [
        {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1+1",
         "container_id": "cntr_1", "outputs": None},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "2", "annotations": []}]},
    ]  # fmt: skip
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
              "model": "m", "output": output,
              "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}  # fmt: skip
    more = [{"role": "user", "content": "1+1?"}, *output, {"role": "user", "content": "thanks"}]
    in_it: dict[str, Any] = {"tools": [{**tool, "container": "cntr_1"}]}
    async with served(says(answer)) as provider:
        built = await made(provider, [])
        # Of before a restart, or of OpenAI itself: nobody else was told it.
        assert (await asked(built, BOB, tools=[tool], input=more)).status == 200
        built.close()
        built = await made(provider, [])
        assert (await asked(built, ALICE, tools=[tool], store=False)).status == 200
        assert (await asked(built, ALICE, tools=[tool], input=more)).status == 200
        assert (await asked(built, ALICE, **in_it)).status == 200
        told = await asked(built, BOB, tools=[tool], input=more)
        assert told.status == 400 and "another key" in told.json["error"]["message"]
        assert (await asked(built, BOB, **in_it)).status == 400
        built.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_container_of_anthropic_too(streamed: bool) -> None:
    container = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
    usage = {"input_tokens": 3, "output_tokens": 2}
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "2"}], "stop_reason": "end_turn", "usage": usage,
        "stop_sequence": None,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "2"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": container},
         "usage": usage},
        {"type": "message_stop"},
    ]  # fmt: skip
    stream = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)

    async def answers_both(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if b'"stream": true' in request:
            writer.write(STREAM_HEAD + framed(stream.encode()) + END)
        else:
            writer.write(reply(200, {**answer, "container": container}))

    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    chat = {"max_tokens": 9, "messages": [{"role": "user", "content": "1+1?"}], "tools": tools}
    async with served(answers_both) as provider:
        built = await made(provider, [], dialect="anthropic")

        async def status(key: str, **body: Any) -> int:
            return (await asked(built, key, "/v1/messages", **chat, **body)).status

        assert await status(ALICE, container="container_1") == 400
        assert await status(ALICE, stream=streamed) == 200
        assert await status(ALICE, container="container_1") == 200
        assert await status(ALICE, container={"id": "container_1", "skills": []}) == 200
        assert await status(BOB, container="container_1") == 400
        built.close()


async def test_a_restart_forgets_nothing_where_there_is_a_store(tmp_path: Path) -> None:
    store = {"store": str(tmp_path / "accounts.db")}
    async with served(both) as provider:
        for first in (True, False):
            book = await accounts({"access": {"keys": KEYS, **store}})
            built = await made(provider, [], book=book, **store)
            if first:
                assert (await asked(built, ALICE)).status == 200
            for key, status in ((ALICE, 200), (BOB, 400)):
                told = await asked(built, key, previous_response_id="resp_1")
                assert told.status == status
            built.close()
            await book.close()


async def test_who_cannot_be_looked_up_is_asked_to_come_again() -> None:
    redis_program()
    configured = (await accounts({"access": {"keys": KEYS}}))._configured
    book = Accounts(
        RedisCounters(connect("redis://127.0.0.1:1/0")),
        now_ns=Clock(),
        random_bytes=random_bytes(),
        configured=configured,
    )
    await book.start()
    async with served(both) as provider:
        built = await made(provider, [], book=book)
        told = await asked(built, ALICE, previous_response_id="resp_0")
        assert told.status == 503 and "looked up" in told.json["error"]["message"]
        assert int(told.headers["retry-after"]) >= 1
        assert (await asked(built, ALICE)).status == 200, "who has no limits is served"
        assert (await asked(built, ALICE, previous_response_id="resp_1")).status == 200
        built.close()
    await book.close()
