"""Workers killed under load: what they held comes back, others go on, every answer is in the books
once, limits hold."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.gateway.upstream.errors import UpstreamError
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.chaos.faults import FAULTS, GOOD
from tests.gateway.chaos.load import Load, load
from tests.gateway.openai_provider import answers, body_of
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import (
    CHAT,
    COST_NUSD,
    KEY,
    MASTER,
    PRICE,
    Running,
    Told,
    ledger_rows,
    running,
    until,
)

pytestmark = pytest.mark.process

WORKERS = 3
CLIENTS = 9
CHATS = "/v1/chat/completions"
STRICT = "hr-another-key-of-a-test-0123456789"
DIES = "rst-mid-answer"
ADMIN_KEY = "hr-admin-key-of-a-test-0123456789"
# A quarter of a lease: what came back within it did not wait for that.
BACK_S = 30.0
# A worker's request log gathers lines for 50 ms; the rest is what a slow machine takes.
UNWRITTEN_S = 3.0
# Answers that a budget has room for.
PAID = 2 * CLIENTS

_THINKS_S = 0.1


class Slow:
    """Answers after a while, so that there is always something under way, and while it `lets`.
    answered: whole answers that it sent, whoever was there to read them."""

    def __init__(self) -> None:
        self.lets = asyncio.Event()
        self.lets.set()
        self._well = answers("Hello there")
        self.answered = 0

    async def answer(self, number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        await asyncio.sleep(_THINKS_S)
        await self.lets.wait()
        if asked["model"] in FAULTS:
            await FAULTS[asked["model"]](asked, writer)
            return
        self.answered += 1
        await self._well(number, request, writer)


def settings(origin: object, key: dict[str, Any], **access: Any) -> dict[str, Any]:
    return {
        "access": {"master_key": MASTER, "keys": {"k": {"key": KEY, **key}}, **access},
        "admin": {"port": 0, "key": ADMIN_KEY},
        "providers": {"p": {"base_url": f"{origin}/v1"}},
        "models": {name: [{"model": f"p/{name}", "price": PRICE}] for name in (GOOD, DIES)},
        "breaker": {"min_attempts": 100_000},
        "ledger": {"path": "ledger.sqlite3"},
        "request_log": {"enabled": True},
        "log": {"level": "warning"},
    }  # fmt: skip


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program(), tmp_path / "redis", persistent=True)
    server.start()
    yield server
    server.kill()


class Killed(NamedTuple):
    """at_s: when. replaced_s: how long until there were as many workers as before."""

    at_s: float
    replaced_s: float


async def workers(gateway: Running) -> dict[int, int]:
    """Requests under way by pid."""
    for _ in range(CLIENTS):
        try:
            told = await gateway.send("GET", "/health", key=MASTER)
        except UpstreamError:
            continue  # it went over a connection of the worker that was killed
        return {one["pid"]: one["in_flight"] for one in told.json["workers"]}
    raise AssertionError("no worker answers")


async def kill_one(gateway: Running) -> Killed:
    """The busiest. Returns when it is replaced."""
    before = await workers(gateway)
    assert len(before) == WORKERS
    pid = max(before, key=lambda one: before[one])
    at_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)

    async def replaced() -> bool:
        now = await workers(gateway)
        return pid not in now and len(now) == WORKERS

    await until(replaced, BACK_S)
    return Killed(at_s, time.monotonic() - at_s)


async def budget_of(gateway: Running, key: str = "k") -> tuple[int, int]:
    """Used and held of a key's budget, as the admin page has it."""
    admin = gateway.at(gateway.told["admin"])
    told = (await admin.fresh("GET", "/api/keys", key=ADMIN_KEY)).json
    (found,) = (one for one in told["keys"] if one["id"] == key)
    (budget,) = (one for one in found["meters"] if one["limit_name"] == "budget")
    return budget["used"], budget["held"]


def check_books(folder: Path, told: Load, kills: list[Killed]) -> int:
    """Of the ledger and the request log; what the ledger's lines come to."""
    rows = ledger_rows(folder, "id, outcome, cost_nusd")
    outcomes = {id: outcome for id, outcome, _ in rows}
    assert len(outcomes) == len(rows), "no request is billed twice"
    # What a worker hands over in the turn in which it is killed may be lost.
    assert len(told.whole.keys() - outcomes.keys()) <= len(kills)
    assert {outcomes.get(id, "answered") for id in told.whole} == {"answered"}
    assert {outcomes.get(id, "cut") for id in told.cut} <= {"cut"}
    answered = [cost for _, outcome, cost in rows if outcome == "answered"]
    assert set(answered) == {COST_NUSD}
    assert len(answered) <= len(told.whole) + CLIENTS * len(kills)
    with sqlite3.connect(folder / "requests.sqlite3") as connection:
        logged = [id for (id,) in connection.execute("SELECT id FROM requests")]
    assert len(set(logged)) == len(logged), "no request is logged twice"
    for id in told.whole.keys() - set(logged):
        assert any(-UNWRITTEN_S < told.whole[id] - one.at_s < 1 for one in kills)
    return sum(cost or 0 for _, _, cost in rows)


async def test_workers_are_killed_while_a_provider_dies(tmp_path: Path) -> None:
    provider = Slow()
    asked = [{"model": GOOD}, {"model": GOOD, "stream": True}, {"model": DIES, "stream": True}]
    async with served(provider.answer) as scripted:
        key = {"budgets": [{"usd": 1000, "per": "1d"}], "limits": [{"concurrency": 2 * CLIENTS}]}
        config = settings(scripted.origin, key)
        async with running(tmp_path, config, workers=WORKERS) as gateway:
            kills = []
            async with load(gateway, CLIENTS, asked) as told:
                for _ in range(2):
                    await told.more(20)
                    kills.append(await kill_one(gateway))
                await told.more(30)
            for at_s, replaced_s in kills:
                others = told.between(at_s, at_s + replaced_s)
                print(f"replaced in {replaced_s:.2f} s, in which the others answered {others}")
                assert others > 0
            assert set(told.statuses) == {200} and told.cut
            assert (await gateway.health())["workers_replaced"] == len(kills)
            counted = await budget_of(gateway)
    cost_nusd = check_books(tmp_path, told, kills)
    # A worker's line and its settlement are one write.
    assert counted == (cost_nusd, 0)
    lined = sum(outcome == "answered" for _, _, outcome, _ in ledger_rows(tmp_path))
    # What a killed worker had under way has no line; clients asked it anew.
    assert 0 <= provider.answered - lined <= CLIENTS * len(kills)


@pytest.mark.parametrize("counted_by", ["parent", "redis"])
async def test_what_a_killed_worker_held_comes_back(
    tmp_path: Path, counted_by: str, request: pytest.FixtureRequest
) -> None:
    """A budget of so many answers pays for exactly these, and none before it has room again."""
    access = {}
    if counted_by == "redis":
        access["redis"] = request.getfixturevalue("redis").url
    provider = Slow()
    provider.lets.clear()
    async with served(provider.answer) as scripted:
        key = {"budgets": [{"usd": PAID * COST_NUSD * 1e-9, "per": "1d"}]}
        config = settings(scripted.origin, key, **access)
        async with running(tmp_path, config, workers=WORKERS) as gateway:

            def ask(count: int) -> list[asyncio.Future[Told]]:
                body = {**CHAT, "model": GOOD}
                asking = [gateway.fresh("POST", CHATS, body) for _ in range(count)]
                return [asyncio.ensure_future(one) for one in asking]

            async def is_held(count: int) -> bool:
                return await budget_of(gateway) == (0, count * COST_NUSD)

            first = ask(CLIENTS)
            await until(lambda: is_held(CLIENTS), BACK_S)
            under_way = await workers(gateway)
            dead = max(under_way, key=lambda pid: under_way[pid])
            left = CLIENTS - under_way[dead]
            began_s = time.monotonic()
            os.kill(dead, signal.SIGKILL)
            await until(lambda: is_held(left), BACK_S)
            back_s = time.monotonic() - began_s
            print(f"{counted_by}: what it held came back in {back_s:.2f} s")
            # While another starts in its place.
            more = ask(2 * PAID)
            provider.lets.set()
            told = await asyncio.gather(*first, *more, return_exceptions=True)
            broken = sum(isinstance(one, UpstreamError) for one in told)
            statuses = Counter(one.status for one in told if isinstance(one, Told))
            # On a machine that is busy with other things Redis may answer too late: refused then.
            late = statuses.pop(503, 0) if counted_by == "redis" else 0
            assert broken == CLIENTS - left
            assert statuses[200] <= PAID and set(statuses) <= {200, 429}
            assert late or statuses[200] == PAID

            async def is_used_up() -> bool:
                await gateway.fresh("POST", CHATS, {**CHAT, "model": GOOD})
                return await budget_of(gateway) == (PAID * COST_NUSD, 0)

            await until(is_used_up, BACK_S)
    rows = ledger_rows(tmp_path)
    assert sum(cost or 0 for _, cost, _, _ in rows) == PAID * COST_NUSD
    assert len({id for id, _, _, _ in rows}) == len(rows)


async def test_redis_dies_under_several_workers(tmp_path: Path, redis: RedisServer) -> None:
    """Keys that are refused meanwhile, and keys that are not: nothing is lost or counted twice."""
    provider = Slow()
    budget = {"budgets": [{"usd": 1000, "per": "1d"}]}
    async with served(provider.answer) as scripted:
        config = settings(scripted.origin, {**budget, "when_stores_are_down": "open"})
        config["access"]["redis"] = redis.url
        config["access"]["keys"]["strict"] = {"key": STRICT, **budget}
        async with running(tmp_path, config, workers=WORKERS) as gateway:
            async with (
                load(gateway, CLIENTS // 2, [{"model": GOOD}]) as served_all_along,
                load(gateway, CLIENTS // 2, [{"model": GOOD}], STRICT) as refused,
            ):
                for _ in range(2):
                    await asyncio.gather(served_all_along.more(20), refused.more(20))
                    redis.kill()
                    refused.statuses.clear()
                    await until(lambda: _has(refused, 503), BACK_S)
                    await served_all_along.more(20)
                    redis.start()
                    print(f"answers again {await refused.more(1):.2f} s after Redis was back")
            spent = {"k": len(served_all_along.whole), "strict": len(refused.whole)}

            async def is_counted() -> bool:
                counted = {name: await budget_of(gateway, name) for name in spent}
                return counted == {name: (n * COST_NUSD, 0) for name, n in spent.items()}

            await until(is_counted, BACK_S)
    assert set(served_all_along.statuses) == {200} and set(refused.statuses) <= {200, 503}
    assert served_all_along.broken == refused.broken == 0
    rows = ledger_rows(tmp_path)
    assert len({id for id, _, _, _ in rows}) == len(rows)
    answered = {id for id, _, outcome, _ in rows if outcome == "answered"}
    assert answered == served_all_along.whole.keys() | refused.whole.keys()
    assert len(answered) == provider.answered
    assert sum(cost or 0 for _, cost, _, _ in rows) == sum(spent.values()) * COST_NUSD


async def test_the_file_is_read_anew_while_a_worker_dies(tmp_path: Path) -> None:
    provider = Slow()
    async with served(provider.answer) as scripted:
        config = settings(scripted.origin, {"limits": [{"concurrency": 2 * CLIENTS}]})
        async with running(tmp_path, config, workers=WORKERS) as gateway:
            async with load(gateway, CLIENTS, [{"model": GOOD}]) as told:
                await told.more(20)
                killing = asyncio.ensure_future(kill_one(gateway))
                # While it dies, and while its successor starts with the file of before.
                for name in ("first", "second"):
                    gateway.reload({**config, "aliases": {name: GOOD}})
                    await asyncio.sleep(0.3)
                kills = [await killing]
                await until(lambda: _all_know(gateway, "second"), BACK_S)
                await told.more(20)
            assert set(told.statuses) == {200}
    check_books(tmp_path, told, kills)


async def _has(load: Load, status: int) -> bool:
    return load.statuses[status] > 0


async def _all_know(gateway: Running, name: str) -> bool:
    """Of so many connections each worker has some."""
    told = await asyncio.gather(*(gateway.fresh("GET", "/v1/models") for _ in range(8 * WORKERS)))
    return all(name in [one["id"] for one in each.json["data"]] for each in told)
