"""Embeddings on their way: the client's words, keys and targets in turn, limits, bills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.accounts import Limits
from headrace.gateway.accounts.terms import Terms
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, accounts_of, budget, hierarchy, standing
from tests.gateway.free_tier.test_limits import Clock, accounts
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, body_of, fails, first
from tests.gateway.test_embeddings import BODY, cohere, openai, settings
from tests.gateway.upstream.scripted import served

PATH = "/v1/embeddings"
SOON = {"backoff_s": 0.001}
# More than Cohere takes at once.
TWO_BATCHES = {"model": "vectors", "input": ["text"] * 97}


async def asked(config: dict[str, Any], body: Any = BODY, path: str = PATH) -> tuple[Told, Entry]:
    entries: list[Entry] = []
    built = gateway(config, entries)
    told = await ask(built.app, body, path=path)
    built.close()
    (entry,) = entries
    return told, entry


@pytest.mark.parametrize("path", [PATH, "/api/embed"])
@pytest.mark.parametrize("dialect", ["openai-chat", "cohere"])
async def test_the_client_says_who_may_see_its_texts(path: str, dialect: str) -> None:
    answer = cohere if dialect == "cohere" else openai
    async with served(answer) as one, served(answer) as other:
        config = settings((dialect, one.origin), (dialect, other.origin))
        config["providers"]["b"] |= {"zero_retention": True, "keeps_data": False}
        for words in (
            {"only": ["b"]},
            {"zdr": True},
            {"order": ["b"]},
            {"ignore": ["a"], "data_collection": "deny"},
        ):
            told, entry = await asked(config, {**BODY, "provider": words}, path)
            assert told.status == 200 and entry.target == "b/e", words
        assert not one.requests
        assert all("provider" not in body_of(sent) for sent in other.requests)
        count = len(other.requests)
        config["providers"]["b"]["zero_retention"] = False
        told, _ = await asked(config, {**BODY, "provider": {"zdr": True}}, path)
        assert told.status == 400 and "no target can serve" in told.body.decode()
        told = await ask(gateway(config, []).app, {**BODY, "provider": {"onyl": []}}, path=path)
        assert told.status == 400 and "onyl" in told.body.decode()
        assert not one.requests and len(other.requests) == count


async def test_models_are_tried_in_turn() -> None:
    async with served(fails(500)) as bad, served(openai) as good:
        config = settings(("openai-chat", bad.origin), ("openai-chat", good.origin))
        config["models"] = {"vectors": ["a/e"], "more": ["b/f"]}
        told, _ = await asked(config, {**BODY, "models": ["more"]})
        assert told.status == 200 and told.headers["x-headrace-model"] == "more"
        assert body_of(good.requests[0])["model"] == "f" and "models" not in body_of(
            good.requests[0]
        )


async def test_the_next_key_of_a_provider_is_tried() -> None:
    async with served(first(fails(429), openai)) as provider:
        config = settings(("openai-chat", provider.origin))
        config["providers"]["a"]["api_key"] = ["key-one", "key-two"]
        told, entry = await asked(config)
        keys = [b"key-one" in one for one in provider.requests]
    assert told.status == 200 and keys == [True, False]
    assert [one.failure for one in entry.attempts] == ["rate_limit"]


async def test_a_target_that_fails_is_asked_again() -> None:
    async with served(first(fails(500), openai)) as provider:
        config = {**settings(("openai-chat", provider.origin)), "retries": SOON}
        told, entry = await asked(config)
        assert told.status == 200 and told.headers["x-headrace-attempts"] == "2"
    assert len(entry.attempts) == 1
    async with served(fails(503)) as provider:
        once = {**SOON, "attempts": 1}
        told, _ = await asked({**settings(("openai-chat", provider.origin)), "retries": once})
        assert told.status == 503 and len(provider.requests) == 1


async def test_the_time_for_the_whole_request_ends_it() -> None:
    gone = asyncio.Event()

    async def hangs(_n: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    async with served(hangs) as provider:
        config = {**settings(("openai-chat", provider.origin)), "timeouts": {"total_s": 0.05}}
        told, entry = await asked(config)
        gone.set()
        assert told.status == 504 and entry.outcome == "failed" and entry.status == 504


async def test_a_client_that_goes_lets_go_of_the_provider() -> None:
    gone = asyncio.Event()

    async def trickles(_n: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.002)
        except ConnectionError:
            gone.set()
            raise

    entries: list[Entry] = []
    own = accounts_of(hierarchy(key=Terms(limits=(Limits(concurrency=1),))))
    await own.start()
    headers = {"authorization": f"Bearer {KEY}"}
    async with served(first(trickles, openai)) as provider:
        built = gateway(settings(("openai-chat", provider.origin)), entries, accounts=own)
        told = await ask(
            built.app, BODY, path=PATH, headers=headers, goes_when=lambda: bool(provider.requests)
        )
        async with asyncio.timeout(5):
            await gone.wait()
        assert told.status == 0 and entries[0].outcome == "client_gone"
        usage = entries[0].usage
        assert usage is not None and usage.input_tokens == 4, "it was sent, and may be billed"
        assert (entries[0].usage_from, entries[0].target) == ("estimated", "a/e")
        again = await ask(built.app, BODY, path=PATH, headers=headers)
        assert again.status == 200, "its place was given back"
        built.close()


async def test_batches_that_came_are_billed_where_a_later_one_fails() -> None:
    own = accounts_of(hierarchy(key=budget(1_000_000)))
    await own.start()
    headers = {"authorization": f"Bearer {KEY}"}
    entries: list[Entry] = []
    async with served(first(cohere, fails(500))) as provider:
        config = {**settings(("cohere", provider.origin)), "retries": {"attempts": 1}}
        built = gateway(config, entries, accounts=own)
        told = await ask(built.app, TWO_BATCHES, path=PATH, headers=headers)
        built.close()
        assert told.status == 502 and len(provider.requests) == 2
    (entry,) = entries
    assert entry.outcome == "failed" and entry.target == "a/e"
    assert entry.usage is not None and entry.usage.input_tokens == 4
    assert entry.usage_from == "provider" and entry.cost_nusd == 4000
    assert await standing(own, "key", "k") == [(4000, 0)]


async def test_batches_thrown_away_are_billed_with_the_answer() -> None:
    async with served(first(cohere, fails(500))) as bad, served(openai) as good:
        told, entry = await asked(
            settings(("cohere", bad.origin), ("openai-chat", good.origin)), TWO_BATCHES
        )
    assert told.status == 200 and entry.target == "b/e"
    assert entry.usage is not None and entry.usage.input_tokens == 8
    assert entry.cost_nusd == 8000 and told.headers["x-headrace-cost-usd"] == "0.000008000"


async def test_what_costs_nothing_has_the_limits_of_the_free_tier() -> None:
    entries: list[Entry] = []
    async with served(openai) as provider:
        config = settings(("openai-chat", provider.origin))
        config["models"]["vectors"] = [{"model": "a/e", "price": {"input": 0, "output": 0}}]
        config |= {"free_tier": {"rpm": 1}, "access": {"require_key": False}}
        app = gateway(config, entries, accounts=accounts(Clock())).app
        told = [await ask(app, BODY, path=PATH) for _ in range(3)]
        assert [one.status for one in told] == [200, 429, 429] and len(provider.requests) == 1
    assert 0 < int(told[1].headers["retry-after"]) <= 61
    assert [one.outcome for one in entries] == ["answered", "refused", "refused"]


@pytest.mark.parametrize(("asks", "says"), [("7", "7"), ("6.2", "7"), ("0.2", "1")])
async def test_how_long_to_wait_is_told(asks: str, says: str) -> None:
    answer: Answer = fails(429, "slow down", f"retry-after: {asks}")
    async with served(answer) as provider:
        config = {**settings(("openai-chat", provider.origin)), "retries": {"attempts": 1}}
        told, _ = await asked(config)
    assert told.status == 429 and told.headers["retry-after"] == says


async def test_a_reply_says_its_way() -> None:
    async with served(openai) as provider:
        told, _ = await asked(settings(("openai-chat", provider.origin)))
    assert told.headers["x-headrace-provider"] == "a"
    assert told.headers["x-headrace-target"] == "a/e"
    assert told.headers["x-headrace-model"] == "vectors"
    assert told.headers["x-headrace-attempts"] == "1"
    assert 0 <= int(told.headers["x-headrace-overhead-us"]) < 20_000_000
