"""Redis killed and started again under load: no answer is lost, none is billed twice."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.gateway.building.accounts import accounts_of
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources
from tests import waiting
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.chaos.faults import GOOD, Provider
from tests.gateway.openai_provider import USAGE
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import KEY, MASTER, Running, ledger_rows, running, until

PRICE = {"input": 1, "output": 2}
COST_NUSD = USAGE["prompt_tokens"] * 1_000 + USAGE["completion_tokens"] * 2_000
CLIENTS = 8


def settings(origin: object, redis: RedisServer, when_down: str) -> dict[str, Any]:
    budget = {"usd": 1000, "per": "1M"}
    return {
        "access": {
            "master_key": MASTER,
            "redis": redis.url,
            "keys": {"k": {
                "key": KEY, "budgets": [budget], "when_stores_are_down": when_down,
            }},
        },
        "providers": {"p": {"base_url": f"{origin}/v1"}},
        "models": {GOOD: [{"model": f"p/{GOOD}", "price": PRICE}]},
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "warning"},
    }  # fmt: skip


class Load:
    """Clients that ask one request after another until they are told to stop."""

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self.statuses: Counter[int] = Counter()
        self.answered_s: list[float] = []
        self._stop = False

    async def client(self) -> None:
        while not self._stop:
            told = await self._gateway.chat(model=GOOD)
            self.statuses[told.status] += 1
            if told.status == 200:
                self.answered_s.append(time.monotonic())
            await asyncio.sleep(0.01)

    async def grows(self, status: int, replies: int) -> None:
        """Wait for so many more replies with a status."""
        wanted = self.statuses[status] + replies
        await waiting.until(
            lambda: self.statuses[status] >= wanted, lambda: f"{wanted} of {self.statuses}"
        )

    def stop(self) -> None:
        self._stop = True


async def counted_nusd(config: dict[str, Any]) -> tuple[int, int]:
    """Used and held of the key's budget, as any other gateway of the cluster reads them."""
    book = await accounts_of(
        parse_settings(Document(config, {}), "gateway.yaml").access,
        Sources({}, Path()),
        now_ns=time.time_ns,
        random_bytes=os.urandom,
        on_alert=lambda alert: None,
    )
    try:
        (budget,) = await book.readings("key", "k")
        return budget.used, budget.held
    finally:
        await book.close()


@pytest.mark.process
@pytest.mark.parametrize("when_down", ["open", "closed"])
async def test_redis_dies_and_comes_back(tmp_path: Path, when_down: str) -> None:
    redis = RedisServer(redis_program(), tmp_path / "redis", persistent=True, password="pw-of-it")
    redis.start()
    provider = Provider()
    try:
        async with served(provider.answer) as scripted:
            config = settings(scripted.origin, redis, when_down)
            async with running(tmp_path, config, workers=1) as gateway:
                load = Load(gateway)
                clients = [asyncio.ensure_future(load.client()) for _ in range(CLIENTS)]
                await load.grows(200, 50)
                assert set(load.statuses) == {200}
                redis.kill()
                await load.grows(503 if when_down == "closed" else 200, 50)
                while_down = Counter(load.statuses)
                redis.start()
                back_s = time.monotonic()
                await load.grows(200, 100)
                load.stop()
                await asyncio.gather(*clients)
                after = [one for one in load.answered_s if one > back_s]
                assert after, "it answers again"
                if when_down == "closed":
                    recovered_s = after[0] - back_s
                    print(f"closed: the first answer came {recovered_s:.2f} s after Redis was back")
                    assert recovered_s < 2.5
                    assert while_down[503] > 0
                assert set(load.statuses) <= {200, 503}
                spent = load.statuses[200] * COST_NUSD

                async def is_counted() -> bool:
                    return await counted_nusd(config) == (spent, 0)

                await until(is_counted, within_s=8)
                if when_down == "open":
                    assert set(load.statuses) == {200}, "requests are served all the same"
    finally:
        redis.kill()
    rows = ledger_rows(tmp_path, "id, outcome, input_tokens, output_tokens, cost_nusd")
    assert len({one[0] for one in rows}) == len(rows) == sum(load.statuses.values())
    answered = [one for one in rows if one[1] == "answered"]
    assert len(answered) == load.statuses[200] == provider.counted[GOOD]
    assert sum(one[2] for one in answered) == provider.billed["in"]
    assert sum(one[3] for one in answered) == provider.billed["out"]
    assert sum(one[4] or 0 for one in rows) == len(answered) * COST_NUSD
