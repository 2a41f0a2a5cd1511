"""Workers that die, are replaced, read the file anew and end, while clients go on asking."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.upstream.errors import UpstreamError
from tests.gateway.openai_provider import answers, completion, reply
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import (
    COST_NUSD,
    KEY,
    WORKERS,
    Running,
    Told,
    ledger_rows,
    running,
    settings_for,
    until,
)

pytestmark = pytest.mark.process

ANSWERED = "headrace:gateway_requests_total"


class Clients:
    """So many at once ask again and again until `stop`. told: by status; broken: connections."""

    def __init__(self, gateway: Running, at_once: int) -> None:
        self._gateway = gateway
        self._going = True
        self.told: Counter[int] = Counter()
        self.ids: set[str] = set()
        self.broken = 0
        self._tasks = [asyncio.ensure_future(self._ask()) for _ in range(at_once)]

    async def _ask(self) -> None:
        while self._going:
            try:
                told: Told = await self._gateway.fresh("POST", "/v1/chat/completions", _BODY)
            except UpstreamError:
                self.broken += 1
                continue
            self.told[told.status] += 1
            if told.status == 200:
                self.ids.add(told.headers["x-request-id"])

    async def asked(self, more: int) -> None:
        """Returns when so many more were answered."""
        wanted = self.told.total() + more

        async def enough() -> bool:
            return self.told.total() >= wanted

        await until(enough)

    async def stop(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)


_BODY = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            budget = {"budgets": [{"usd": 1000, "per": "1d"}], "limits": [{"concurrency": 40}]}
            settings = settings_for(str(provider.origin), key=budget)
            async with running(tmp_path, settings) as gateway:
                before = await gateway.worker_pids()
                clients = Clients(gateway, 8)
                await clients.asked(40)
                counted = await gateway.counter(ANSWERED)
                os.kill(min(before), signal.SIGKILL)
                await clients.asked(40)
                assert await gateway.counter(ANSWERED) >= counted

                async def replaced() -> bool:
                    now = await gateway.worker_pids()
                    return len(now) == WORKERS and now != before

                await until(replaced)
                await clients.asked(40)
                await clients.stop()
                assert set(clients.told) == {200}
                assert clients.broken <= 8
                health = await gateway.health()
                assert health["workers_replaced"] == 1
        rows = ledger_rows(tmp_path)
        # What was answered has its line, but for requests whose worker died between the last byte
        # of the answer and the line: at most those it had under way.
        lined = {id for id, _, _, _ in rows}
        assert len(clients.ids - lined) <= clients.broken
        assert sum(cost for _, cost, _, _ in rows if cost) == COST_NUSD * len(
            [1 for _, _, outcome, _ in rows if outcome == "answered"]
        )

    asyncio.run(check())


def test_what_a_killed_worker_held_comes_back(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def waits(_number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"wait for it" in request:
            await release.wait()
        writer.write(reply(200, completion("Hello")))

    async def check() -> None:
        async with served(waits) as provider:
            settings = settings_for(str(provider.origin), key={"limits": [{"concurrency": 1}]})
            async with running(tmp_path, settings, workers=2) as gateway:
                slow = asyncio.ensure_future(
                    gateway.chat(messages=[{"role": "user", "content": "wait for it"}])
                )

                async def is_there() -> bool:
                    return len(provider.requests) == 1

                await until(is_there)
                assert (await gateway.fresh("POST", "/v1/chat/completions", _BODY)).status == 429
                workers = (await gateway.health())["workers"]
                busy = next(one["pid"] for one in workers if one["in_flight"])
                os.kill(busy, signal.SIGKILL)
                slow.cancel()
                with contextlib.suppress(UpstreamError, asyncio.CancelledError):
                    await slow

                async def has_room() -> bool:
                    told = await gateway.fresh("POST", "/v1/chat/completions", _BODY)
                    return told.status == 200

                await until(has_room)
                release.set()

    asyncio.run(check())


def test_a_file_read_anew_under_load_fails_no_request(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            settings = settings_for(str(provider.origin))
            async with running(tmp_path, settings) as gateway:
                clients = Clients(gateway, 6)
                await clients.asked(20)
                more = {**settings, "aliases": {"talk": "chat"}}
                for wanted in (more, settings, more):
                    gateway.reload(wanted)

                    async def taken(wanted: dict[str, Any] = wanted) -> bool:
                        told = [await gateway.fresh("GET", "/v1/models") for _ in range(12)]
                        names = {len(one.json["data"]) for one in told}
                        return names == {len(wanted.get("aliases", {})) + 1}

                    await until(taken)
                gateway.reload("models: [this is no file")

                async def refused() -> bool:
                    return "the previous one stays" in gateway.log.read_text()

                await until(refused)
                await clients.asked(20)
                await clients.stop()
                told = await gateway.send(
                    "POST", "/v1/chat/completions", {**_BODY, "model": "talk"}, KEY
                )
                assert told.status == 200
                assert set(clients.told) == {200}
                assert clients.broken == 0
        assert clients.ids <= {id for id, _, _, _ in ledger_rows(tmp_path)}

    asyncio.run(check())


def test_an_end_answers_what_is_under_way(tmp_path: Path) -> None:
    async def slowly(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(reply(200, completion("Hello")))

    async def check() -> None:
        async with (
            served(slowly) as provider,
            running(tmp_path, settings_for(str(provider.origin))) as gateway,
        ):
            asked = [asyncio.ensure_future(gateway.chat()) for _ in range(12)]

            async def all_there() -> bool:
                return len(provider.requests) == 12

            await until(all_there)
            gateway.process.send_signal(signal.SIGTERM)
            assert {one.status for one in await asyncio.gather(*asked)} == {200}
            async with asyncio.timeout(20):
                assert await gateway.process.wait() == 0
        assert len(ledger_rows(tmp_path)) == 12

    asyncio.run(check())


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    async def check() -> None:
        async with served(answers()) as provider:
            settings = settings_for(str(provider.origin))
            async with running(tmp_path, settings, workers=2) as gateway:
                pids = await gateway.worker_pids()
                gateway.process.kill()
                await gateway.process.wait()

                async def all_gone() -> bool:
                    return not any(_lives(pid) for pid in pids)

                await until(all_gone)

    asyncio.run(check())


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_second_signal_cuts_what_is_under_way(tmp_path: Path) -> None:
    async def never(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def check() -> None:
        async with (
            served(never) as provider,
            running(tmp_path, settings_for(str(provider.origin)), workers=2) as gateway,
        ):
            asked = asyncio.ensure_future(gateway.chat())

            async def is_there() -> bool:
                return len(provider.requests) == 1

            await until(is_there)
            gateway.process.send_signal(signal.SIGTERM)

            async def takes_no_more() -> bool:
                try:
                    await gateway.fresh("GET", "/health")
                except UpstreamError:
                    return True
                return False

            await until(takes_no_more)
            assert gateway.process.returncode is None
            gateway.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await gateway.process.wait() == 0
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        ((_, _, outcome, _),) = ledger_rows(tmp_path)
        assert outcome == "client_gone"

    asyncio.run(check())
