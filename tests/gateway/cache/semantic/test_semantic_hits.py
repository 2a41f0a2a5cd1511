"""Questions that mean the same, through a whole gateway with an embedder of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts import Budget, Limits, Terms, secret_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, OTHER_KEY, key_record, standing
from tests.gateway.cache.test_hits import STATE
from tests.gateway.cache.test_hits import settings as settings_of
from tests.gateway.cache.test_tenants import accounts
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import Answer, answers, body_of, fails, reply
from tests.gateway.upstream.scripted import served

SIMILARITY = "x-headrace-cache-similarity"
REFUND = "How do I get a refund?"
MONEY = "Where can I have my money back?"
WEATHER = "What will the weather be tomorrow?"
# Cosine of the first two: 0.98.
VECTORS = {REFUND: [1.0, 0.0, 0.0], MONEY: [0.98, 0.199, 0.0], WEATHER: [0.0, 0.0, 2.0]}


async def embedder(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
    text = body_of(request)["input"]
    data = [{"object": "embedding", "index": 0, "embedding": VECTORS.get(text, [0.0, 1.0, 1.0])}]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    writer.write(reply(200, {"object": "list", "data": data, "model": "e", "usage": usage}))


def settings(chat: Any, vectors: Any, cache: dict[str, Any] | None = None) -> dict[str, Any]:
    semantic = {"embedding_model": "embedder", "timeout_s": 5.0}
    cache = dict(cache or {})
    semantic |= cache.pop("semantic", {})
    found = settings_of(chat, cache={**cache, "semantic": semantic})
    found["providers"]["e"] = {"base_url": f"{vectors}/v1", "dialect": "openai-chat"}
    target = {"model": "e/m", "price": {"input": 2.0, "output": 0.0}}
    found["models"]["embedder"] = {"targets": [target]}
    return found


def chat(text: str, **more: Any) -> dict[str, Any]:
    system = {"role": "system", "content": "You work for a shop."}
    messages = [system, {"role": "user", "content": text}]
    return {"model": "chat", "messages": messages, "temperature": 0, **more}


async def state(built: Gateway, body: dict[str, Any], key: str = "", **more: str) -> str:
    headers = {**({"authorization": f"Bearer {key}"} if key else {}), **more}
    told = await ask(built.app, body, headers=headers)
    assert told.status == 200
    await _settled()
    return told.headers[STATE]


async def _settled() -> None:
    """What is kept a moment later is kept."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_another_wording_gets_the_answer_and_the_vector_is_billed() -> None:
    entries: list[Entry] = []
    async with served(answers("Ask us.")) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), entries)
        assert await state(built, chat(REFUND)) == "miss"
        told = await ask(built.app, chat(MONEY))
        assert (told.status, told.headers[STATE], told.headers[SIMILARITY]) == (
            200, "semantic", "0.9800",
        )  # fmt: skip
        assert told.json["choices"][0]["message"]["content"] == "Ask us."
        assert "age" in told.headers and told.headers["x-headrace-cost-usd"] == "0.000000000"
        streamed = await ask(built.app, chat(MONEY, stream=True))
        assert streamed.headers[STATE] == "semantic" and b"Ask us." in streamed.body
        assert await state(built, chat(WEATHER)) == "miss"
        assert await state(built, chat(REFUND)) == "hit", "the same request is looked for first"
        assert (len(provider.requests), len(vectors.requests)) == (2, 4)
        built.close()
    lines = [(one.operation, one.cache, one.cost_nusd) for one in entries]
    assert lines == [
        ("embeddings", "", 14_000), ("chat", "", 18_000), ("embeddings", "", 14_000),
        ("chat", "semantic", 0), ("embeddings", "", 14_000), ("chat", "semantic", 0),
        ("embeddings", "", 14_000), ("chat", "", 18_000), ("chat", "hit", 0),
    ]  # fmt: skip
    question, asked = entries[:2]
    assert (question.purpose, question.parent) == ("cache", asked.id)
    assert question.model == "embedder" and question.target == "e/m"


async def test_what_has_to_be_equal_beside_the_question() -> None:
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin, {"all": True}), [])
        assert await state(built, chat(REFUND)) == "miss"
        others: list[dict[str, Any]] = [
            chat(MONEY, temperature=1),
            chat(MONEY, tools=[{"type": "function", "function": {"name": "f"}}]),
            {**chat(MONEY), "messages": chat(MONEY)["messages"][1:]},
            chat(MONEY, model="a/m0"),
        ]
        for body in others:
            assert await state(built, body) == "miss"
        assert await state(built, chat(MONEY), **{"cache-control": "no-cache"}) == "bypass"
        assert await state(built, chat(MONEY, cache={"namespace": "x"})) == "miss"
        built.close()


async def test_no_tenant_gets_anothers_answer() -> None:
    terms = Terms(models=("chat",))
    known = accounts(key_record(terms=terms), key_record(id="l", secrets=(secret_of(OTHER_KEY),)))
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), [], accounts=known)
        assert await state(built, chat(REFUND, max_tokens=5), KEY) == "miss"
        assert await state(built, chat(REFUND, max_tokens=5), OTHER_KEY) == "miss"
        assert await state(built, chat(MONEY, max_tokens=5), OTHER_KEY) == "semantic"
        built.close()
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), [], accounts=known)
        assert await state(built, chat(REFUND, max_tokens=5), KEY) == "miss"
        assert await state(built, chat(MONEY, max_tokens=5), OTHER_KEY) == "miss"
        assert await state(built, chat(MONEY, max_tokens=5), KEY) == "semantic"
        built.close()


async def test_vectors_go_on_the_budget_and_not_on_limits_of_requests() -> None:
    terms = Terms(limits=(Limits(rpm=3),), budgets=(Budget(amount=10**9, window="1d"),))
    known = accounts(key_record(terms=terms))
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), [], accounts=known)
        assert await state(built, chat(REFUND, max_tokens=5), KEY) == "miss"
        assert await state(built, chat(MONEY, max_tokens=5), KEY) == "semantic"
        await _settled()
        assert sorted(await standing(known, "key", "k")) == [(2, 0), (46_000, 0)]
        built.close()


@pytest.mark.parametrize("broken", [fails(500), fails(400)])
async def test_an_embedder_that_fails_is_a_miss(broken: Answer) -> None:
    async with served(answers()) as provider, served(broken) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), [])
        for text in (REFUND, MONEY, WEATHER):
            assert await state(built, chat(text)) == "miss"
        assert await state(built, chat(MONEY)) == "hit"
        built.close()


async def test_a_slow_embedder_costs_a_bounded_wait_and_is_billed_all_the_same() -> None:
    gate = asyncio.Event()
    entries: list[Entry] = []

    async def slow(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await embedder(number, request, writer)

    async with served(answers()) as provider, served(slow) as vectors:
        cache = {"semantic": {"timeout_s": 0.02}}
        built = gateway(settings(provider.origin, vectors.origin, cache), entries)
        assert await state(built, chat(REFUND)) == "miss"
        assert [one.operation for one in entries] == ["chat"]
        gate.set()
        while len(entries) < 2:
            await asyncio.sleep(0.001)
        assert (entries[1].operation, entries[1].outcome) == ("embeddings", "answered")
        await _settled()
        semantic = built.serving.cache.semantic if built.serving.cache else None
        assert semantic is not None and len(semantic._vectors) == 1, "its vector came to use"  # type: ignore[arg-type]
        built.close()


async def test_who_says_where_data_may_go_or_wants_something_done_is_not_embedded() -> None:
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin), [])
        assert await state(built, chat(REFUND, provider={"only": ["a"]})) == "miss"
        assert await state(built, chat(REFUND, web_search_options={"x": 1})) == "miss"
        built.close()
        assert vectors.requests == []


async def test_answers_that_age_or_go_are_not_given() -> None:
    now = [1_790_000_000.0]
    async with served(answers()) as provider, served(embedder) as vectors:
        cache = {"semantic": {"ttl_s": 10}}
        built = gateway(settings(provider.origin, vectors.origin, cache), [], wall_s=lambda: now[0])
        assert await state(built, chat(REFUND)) == "miss"
        now[0] += 9
        assert await state(built, chat(MONEY), **{"cache-control": "max-age=5"}) == "miss"
        built.close()
        built = gateway(settings(provider.origin, vectors.origin, cache), [], wall_s=lambda: now[0])
        assert await state(built, chat(REFUND)) == "miss"
        now[0] += 11
        assert await state(built, chat(MONEY)) == "miss", "older than semantic.ttl_s"
        built.close()


async def test_a_file_keeps_questions_over_a_restart(tmp_path: Path) -> None:
    async with served(answers()) as provider, served(embedder) as vectors:
        cache = {"store": "sqlite", "path": str(tmp_path / "c.db")}
        built = gateway(settings(provider.origin, vectors.origin, dict(cache)), [])
        assert await state(built, chat(REFUND)) == "miss"
        built.close()
        cached = built.serving.cache
        assert cached is not None and cached.semantic is not None
        cached._store._file._thread.shutdown(wait=True)  # type: ignore[attr-defined]
        cached.semantic._vectors._file._thread.shutdown(wait=True)  # type: ignore[attr-defined]
        built = gateway(settings(provider.origin, vectors.origin, dict(cache)), [])
        assert await state(built, chat(MONEY)) == "semantic"
        built.close()


async def test_with_coalescing_one_of_a_burst_is_embedded() -> None:
    async with served(answers()) as provider, served(embedder) as vectors:
        built = gateway(settings(provider.origin, vectors.origin, {"coalesce": True}), [])
        told: list[Told] = await asyncio.gather(*(ask(built.app, chat(REFUND)) for _ in range(8)))
        assert sorted(one.headers[STATE] for one in told) == ["coalesced"] * 7 + ["miss"]
        told = await asyncio.gather(*(ask(built.app, chat(MONEY)) for _ in range(8)))
        assert sorted(one.headers[STATE] for one in told) == ["coalesced"] * 7 + ["semantic"]
        assert (len(provider.requests), len(vectors.requests)) == (1, 2)
        built.close()


def test_a_model_that_nobody_serves_is_an_error_of_the_file() -> None:
    config = settings("http://127.0.0.1:9", "http://127.0.0.1:9")
    config["cache"]["semantic"]["embedding_model"] = "embeder"
    with pytest.raises(ConfigError, match=r"cache\.semantic\.embedding_model.*embedder"):
        gateway(config, [])
    assert "embeder" in json.dumps(config)
