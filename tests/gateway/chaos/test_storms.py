"""Providers that are asked too much, and clients that send a byte at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.chaos.faults import TEXT
from tests.gateway.openai_provider import answers, body_of, reply
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import KEY, MASTER, Running, ledger_rows, running, until

pytestmark = pytest.mark.process

PRICE = {"input": 1, "output": 2}
STORM_S = 0.8
CLIENTS = 40


class Stormy:
    """429 to one model, or to one key, until `over_s`; well after it and to all others."""

    def __init__(self, *, model: str = "stormy", key: bytes = b"", after: str = "") -> None:
        self._model, self._key, self._after = model, key, after
        self._well = answers(TEXT)
        self.over_s = float("inf")
        self.refused = 0
        self.served: Counter[str] = Counter()

    async def answer(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        model = body_of(request)["model"]
        meant = model == self._model and (not self._key or self._key in request)
        if not meant or time.time() >= self.over_s:
            self.served[model] += 1
            await self._well(number, request, writer)
            return
        self.refused += 1
        headers = [f"date: {formatdate(time.time(), usegmt=True)}"]
        if self._after == "seconds":
            headers.append("retry-after: 1")
        elif self._after == "date":
            headers.append(f"retry-after: {formatdate(time.time() + 1, usegmt=True)}")
        error = {"error": {"message": "slow down", "type": "rate_limit_error"}}
        writer.write(reply(429, error, *headers))


def settings(origin: object, *keys: str) -> dict[str, Any]:
    targets = [{"model": f"p/{name}", "price": PRICE} for name in ("stormy", "calm")]
    return {
        "access": {"master_key": MASTER, "keys": {"k": {"key": KEY}}},
        "providers": {"p": {"base_url": f"{origin}/v1", "api_key": list(keys or ("sk-one",))}},
        "models": {
            "stormy": targets[:1],
            "both": {"strategy": "ordered", "targets": [
                targets[0], {"model": "q/calm", "price": PRICE},
            ]},
        },
        "retries": {"backoff_s": 0.01, "backoff_max_s": 0.05},
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "warning"},
    }  # fmt: skip


async def statuses(gateway: Running, model: str) -> Counter[int]:
    told = await asyncio.gather(*(gateway.chat(model=model) for _ in range(CLIENTS)))
    return Counter(one.status for one in told)


def billed(folder: Path) -> tuple[int, int]:
    """Lines of the ledger, and answers in them."""
    rows = ledger_rows(folder, "outcome, cost_nusd")
    answered = [one for one in rows if one[0] == "answered"]
    assert all((one[1] or 0) > 0 for one in answered)
    assert all(not one[1] for one in rows if one[0] != "answered")
    return len(rows), len(answered)


@pytest.mark.parametrize("after", ["seconds", "date"])
async def test_a_storm_that_says_when_it_is_over(tmp_path: Path, after: str) -> None:
    storm = Stormy(after=after)
    async with served(storm.answer) as provider:
        config = settings(provider.origin)
        config["models"].pop("both")
        async with running(tmp_path, config, workers=1) as gateway:
            storm.over_s = time.time() + STORM_S
            told = await gateway.chat(model="stormy")
            assert told.status == 429 and 1 <= int(told.headers["retry-after"]) <= 2
            told = await gateway.chat(model="stormy")
            assert told.status == 429 and 1 <= int(told.headers["retry-after"]) <= 2
            assert await statuses(gateway, "stormy") == {429: CLIENTS}
            assert storm.refused <= 2, "a key that rests is not asked with"
            began_s = time.time()

            async def is_over() -> bool:
                return (await gateway.chat(model="stormy")).status == 200

            await until(is_over, within_s=6)
            recovered_s = time.time() - began_s
            print(f"after a Retry-After of 1 s as {after} answers came after {recovered_s:.2f} s")
            assert recovered_s < 3
    lines, answered = billed(tmp_path)
    assert answered == storm.served["stormy"] == 1 and lines > CLIENTS


async def test_a_storm_without_a_word_goes_to_the_other_key(tmp_path: Path) -> None:
    storm = Stormy(key=b"sk-one")
    async with served(storm.answer) as provider:
        config = settings(provider.origin, "sk-one", "sk-two")
        config["models"].pop("both")
        async with running(tmp_path, config, workers=1) as gateway:
            assert await statuses(gateway, "stormy") == {200: CLIENTS}
    assert storm.refused <= CLIENTS and storm.served["stormy"] == CLIENTS
    assert billed(tmp_path) == (CLIENTS, CLIENTS)


async def test_a_storm_at_one_target_is_no_storm_for_clients(tmp_path: Path) -> None:
    storm = Stormy(after="seconds")
    async with served(storm.answer) as provider:
        config = settings(provider.origin)
        config["providers"]["q"] = {"base_url": f"{provider.origin}/v1", "api_key": ["sk-q"]}
        async with running(tmp_path, config, workers=1) as gateway:
            for _ in range(3):
                assert await statuses(gateway, "both") == {200: CLIENTS}
    assert storm.served["calm"] == 3 * CLIENTS
    assert billed(tmp_path) == (3 * CLIENTS, 3 * CLIENTS)


async def test_slow_clients_hold_nobody_up(tmp_path: Path) -> None:
    """A hundred that send a byte now and then, and ten that read nothing of a long answer."""
    word = "word " * 200

    async def long(number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        text = word if body_of(request)["model"] == "calm" else TEXT
        await answers(text)(number, request, writer)

    async with served(long) as provider:
        config = settings(provider.origin)
        config["models"] = {
            "chat": [{"model": "p/stormy", "price": PRICE}],
            "long": [{"model": "p/calm", "price": PRICE}],
        }
        async with running(tmp_path, config, workers=1) as gateway:
            address = gateway.pool.origin.host, gateway.pool.origin.port
            slow = [await asyncio.open_connection(*address) for _ in range(100)]
            for _, writer in slow:
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-a: ")
            body = b'{"model": "long", "stream": true, "messages": [{"role":"user","content":"a"}]}'
            head = (
                "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                f"authorization: Bearer {KEY}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            ).encode()
            deaf = [await asyncio.open_connection(*address, limit=1024) for _ in range(10)]
            for _, writer in deaf:
                writer.write(head + body)
            began_s = time.monotonic()
            told = await asyncio.gather(*(gateway.chat() for _ in range(CLIENTS)))
            took_s = time.monotonic() - began_s
            for _, writer in slow:
                writer.write(b"b")
            assert {one.status for one in told} == {200}
            print(f"{CLIENTS} requests beside 110 slow clients took {took_s:.2f} s")
            assert took_s < 5
            for _, writer in (*slow, *deaf):
                writer.close()
    rows = ledger_rows(tmp_path)
    assert len(rows) == CLIENTS + len(deaf), "who never sent a request has no line"
