"""Keys, budgets and limits as the file gives them, through a whole gateway."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.building.accounts import accounts_of, records_of
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10}
KEY = "hr-" + "k" * 43
SOURCES = Sources({"KEY": KEY, "MASTER": "hr-master"}, Path())


def settings(origin: object, access: dict[str, Any]) -> dict[str, Any]:
    return {
        "access": access,
        "providers": {"a": {"base_url": f"{origin}/v1", "dialect": "openai-chat"}},
        "models": {
            "chat": [{"model": "a/m", "price": {"input": 1.0, "output": 2.0}}],
            "other": ["a/o"],
        },
    }


async def accounts(config: dict[str, Any]) -> Accounts:
    counter = itertools.count()
    return await accounts_of(
        parse_settings(Document(config, {}), "gateway.yaml").access,
        SOURCES,
        now_ns=lambda: 1_790_000_000 * 10**9,
        random_bytes=lambda size: next(counter).to_bytes(size, "big"),
        on_alert=lambda alert: None,
    )


async def asked(app: Any, key: str | None, body: dict[str, Any] = CHAT, **more: Any) -> Told:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return await ask(app, body, headers=headers, **more)


async def test_who_has_no_key_is_told_so_in_the_words_of_its_dialect() -> None:
    async with served(answers()) as provider:
        config = settings(provider.origin, {"keys": {"k": {"key": "env:KEY", "models": ["chat"]}}})
        app = gateway(
            config, [], accounts=await accounts(config), environ=dict(SOURCES.environ)
        ).app
        for key in (None, "hr-wrong", KEY + "x"):
            told = await asked(app, key)
            assert told.status == 401 and told.json["error"]["code"] == "invalid_api_key"
        for path, method in (("/v1/chat/completions", "POST"), ("/v1/models", "GET"),
                             ("/metrics", "GET")):  # fmt: skip
            for headers, said in (
                ({}, "no key was sent; send it as `Authorization: Bearer KEY`"),
                ({"authorization": KEY}, "no key was sent (its value has no `Bearer` before it)"),
                ({"authorization": "Bearer hr-wrong"}, "is not a key of this gateway"),
            ):
                told = await ask(app, CHAT, path=path, method=method, headers=headers)
                error = told.json["error"]
                assert (told.status, error["code"]) == (401, "invalid_api_key"), path
                assert said in error["message"] and KEY not in error["message"]
        assert (await asked(app, KEY)).status == 200
        assert (await ask(app, CHAT, headers={"x-api-key": KEY})).status == 200
        other = await asked(app, KEY, {**CHAT, "model": "other"})
        assert other.status == 403 and "other" in other.json["error"]["message"]
        more = await asked(app, KEY, {**CHAT, "models": ["other"]})
        assert more.status == 403, "nor by the list of models that follow it"
        assert (await asked(app, KEY, {**CHAT, "model": "chat:floor"})).status == 200
        listed = await asked(app, KEY, {}, path="/v1/models", method="GET")
        assert [one["id"] for one in listed.json["data"]] == ["chat"]
        anthropic = await ask(app, {**CHAT, "max_tokens": 5}, path="/v1/messages")
        assert anthropic.status == 401
        assert anthropic.json["error"]["type"] == "authentication_error"
        assert len(provider.requests) == 3


async def test_a_budget_for_ten_requests_and_two_hundred_at_once() -> None:
    entries: list[Entry] = []
    async with served(answers()) as provider:
        # What each may take at most: its estimate of input and 10 tokens of output.
        config = settings(provider.origin, {
            "teams": {"red": {"budgets": [{"usd": 1.0, "per": "1M"}]}},
            "keys": {"k": {"key": "env:KEY", "team": "red"}},
        })  # fmt: skip
        config["models"]["chat"][0]["price"] = {"input": 0.0, "output": 10_000.0}
        built = gateway(config, entries, accounts=await accounts(config))
        told = await asyncio.gather(*(asked(built.app, KEY) for _ in range(200)))
        passed = [one for one in told if one.status == 200]
        # $0.10 is held for each; what three tokens cost, $0.03, is settled, and more pass then.
        assert sum(entry.cost_nusd or 0 for entry in entries) <= 10**9
        assert 10 <= len(passed) <= 33
        refused = next(one for one in told if one.status == 429)
        assert "team 'red'" in refused.json["error"]["message"]
        assert refused.json["error"]["code"] == "rate_limit_exceeded"
        assert len(provider.requests) == len(passed)


async def test_what_failed_is_given_back() -> None:
    config = settings("http://127.0.0.1:9", {
        "keys": {"k": {"key": "env:KEY", "limits": [{"rpm": 1000, "concurrency": 1}],
                       "budgets": [{"usd": 0.001, "per": "1d"}]}},
    })  # fmt: skip
    config["retries"] = {"attempts": 1}
    book = await accounts(config)
    built = gateway(config, [], accounts=book)
    for _ in range(5):
        assert (await asked(built.app, KEY)).status in (502, 503)
    (budget,) = [one for one in await book.readings("key", "k") if one.meter.is_budget]
    assert budget.used == 0


@pytest.mark.parametrize(
    ("access", "said"),
    [
        ({"keys": {"k": {}}}, "give either key or sha256"),
        ({"keys": {"k": {"key": "env:NOT_THERE"}}}, "NOT_THERE"),
        ({"keys": {"k": {"sha256": "abc"}}}, "SHA-256"),
        (
            {"keys": {"k": {"key": "env:KEY", "team": "a", "user": "b"}}},
            "belongs to only one group",
        ),
        ({"keys": {"k": {"key": "env:KEY", "team": "nope"}}}, "nope"),
        # One of these would have the master key's part of caches, and its lines in the ledger.
        *(
            ({"keys": {name: {"key": "env:KEY"}}}, f"access.keys.{name}: .* choose another")
            for name in ("master", "admin", "anonymous")
        ),
    ],
)
async def test_what_is_wrong_with_the_file(access: dict[str, Any], said: str) -> None:
    config = settings("http://127.0.0.1:9", access)
    with pytest.raises(ConfigError, match=said) as caught:
        await accounts(config)
    assert KEY not in str(caught.value)


def test_records_carry_what_the_file_says() -> None:
    config = settings("http://127.0.0.1:9", {
        "organisations": {"acme": {"data_collection": "deny", "regions": ["eu"]}},
        "teams": {"red": {"organisation": "acme", "limits": [{"tpm": 1000}]}},
        "users": {"ann": {"team": "red", "budgets": [
            {"usd": 12.5, "per": "1w", "calendar": True, "models": "gpt-*"}]}},
        "keys": {"k": {"key": "env:KEY", "user": "ann", "tags": ["ci"]}},
    })  # fmt: skip
    access = parse_settings(Document(config, {}), "gateway.yaml").access
    found = records_of(access, SOURCES)
    assert [(one.level, one.name) for one in found.groups] == [
        ("organisation", "acme"), ("team", "red"), ("user", "ann"),
    ]  # fmt: skip
    (budget,) = found.groups[2].terms.budgets
    assert (budget.amount, budget.window, budget.calendar) == (12_500_000_000, "1w", True)
    assert found.groups[0].terms.data_policy.regions == ("eu",)
    assert KEY not in repr(found)


async def test_who_has_no_key_is_not_read() -> None:
    """A body costs memory, and what it says costs time."""
    config = settings("http://127.0.0.1:9", {"keys": {"k": {"key": "env:KEY"}}})
    app = gateway(config, [], accounts=await accounts(config)).app
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    told: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        told.append(message)

    for path in ("/v1/chat/completions", "/v1/messages", "/v1/embeddings"):
        await app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    assert [one["status"] for one in told if "status" in one] == [401, 401, 401] and read == 0


async def test_a_budget_that_is_spent_is_no_rate_limit_and_is_not_tried_again() -> None:
    async with served(answers()) as provider:
        config = settings(provider.origin, {
            "keys": {"k": {"key": "env:KEY", "budgets": [{"usd": 0.0001, "per": "1w"}]},
                     "few": {"key": "env:MASTER", "limits": [{"rpm": 1}]}},
        })  # fmt: skip
        app = gateway(
            config, [], accounts=await accounts(config), wall_s=lambda: 1_790_000_000.0
        ).app
        while (told := await asked(app, KEY)).status == 200:
            assert len(provider.requests) < 20
        assert told.status == 429 and told.headers["x-should-retry"] == "false"
        error = told.json["error"]
        assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert "try again at 2026-09-28 1" in error["message"] and " UTC" in error["message"]
        assert int(told.headers["retry-after"]) > 600_000
        larger = await asked(app, KEY, {**CHAT, "max_tokens": 1000})
        assert larger.json["error"]["code"] == "insufficient_quota", "more than all of it"
        told = await asked(app, KEY, path="/v1/messages")
        assert told.status == 429 and told.headers["x-should-retry"] == "false"
        assert told.json["error"]["type"] == "billing_error"
        told = await asked(app, KEY, {"model": "chat", "input": "Hi " * 90}, path="/v1/embeddings")
        assert told.json["error"]["code"] == "insufficient_quota"
        limited = [await asked(app, "hr-master") for _ in range(2)][1]
        assert limited.status == 429 and "x-should-retry" not in limited.headers
        assert limited.json["error"]["code"] == "rate_limit_exceeded"
        assert "try again in" in limited.json["error"]["message"]


async def test_a_budget_that_running_requests_hold_may_be_tried_again() -> None:
    wait = asyncio.Event()

    async def late(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        await wait.wait()
        await answers()(number, request, writer)

    async with served(late) as provider:
        config = settings(provider.origin, {
            "keys": {"k": {"key": "env:KEY", "budgets": [{"usd": 0.0001, "per": "1w"}]}},
        })  # fmt: skip
        app = gateway(config, [], accounts=await accounts(config)).app
        first = asyncio.create_task(asked(app, KEY))
        await asyncio.wait([first], timeout=0.2)
        assert not first.done(), first.result()
        told = await asked(app, KEY)
        assert told.json["error"]["code"] == "rate_limit_exceeded"
        assert "x-should-retry" not in told.headers
        wait.set()
        assert (await first).status == 200
