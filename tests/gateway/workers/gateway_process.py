"""A gateway of several processes, started as users start it, in front of a scripted provider."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import Origin
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes

MASTER = "hr-master-key-of-a-test-0123456789"
KEY = "hr-a-key-of-a-test-0123456789abcdef"
# A request's answer has three tokens and so costs 3 million nano-dollars, held and settled.
PRICE = {"input": 0, "output": 1000}
COST_NUSD = 3_000_000
# Each costs a third of a second of CPU to start; with three there are two others than a chosen one.
WORKERS = 3
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}

_START_S = 60.0
_TIMEOUTS = Timeouts(connect_s=20.0, first_byte_s=30.0, idle_s=30.0)


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Running:
    """process: the parent. told: what it said as it began to serve. Requests go over kept
    connections, of which there may be many."""

    def __init__(
        self, process: asyncio.subprocess.Process, told: dict[str, Any], folder: Path
    ) -> None:
        self.process = process
        self.told = told
        self.folder = folder
        self.log = folder / "log"
        self._go_to(told["url"])

    def at(self, url: str) -> Running:
        """The same process at another address."""
        other = Running(self.process, self.told, self.folder)
        other._go_to(url)
        return other

    def new_pool(self) -> Pool:
        """Connections of their own."""
        return Pool(self._origin)

    def _go_to(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        self._origin = Origin("http", host, int(port))
        self.pool = Pool(self._origin, PoolLimits(connections=256))

    @property
    def config(self) -> Path:
        return self.folder / "gateway.yaml"

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str = KEY,
        pool: Pool | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Told:
        """One request. Raises UpstreamError where the connection breaks."""
        raw = b"" if body is None else json.dumps(body).encode()
        told = [("authorization", f"Bearer {key}"), ("content-type", "application/json"), *headers]
        request = request_bytes(method, self._origin, path, told, raw)
        reply = await (pool or self.pool).send(request, _TIMEOUTS)
        try:
            return Told(reply.status, dict(reply.headers), await reply.body(1 << 24))
        finally:
            reply.abort()

    async def chat(self, key: str = KEY, **more: Any) -> Told:
        """A request for an answer."""
        return await self.send("POST", "/v1/chat/completions", {**CHAT, **more}, key)

    async def fresh(self, method: str, path: str, body: Any = None, key: str = KEY) -> Told:
        """On a connection of its own, which any worker may get."""
        pool = Pool(self._origin)
        try:
            return await self.send(method, path, body, key, pool)
        finally:
            pool.close()

    async def health(self) -> Any:
        """All of it."""
        return (await self.fresh("GET", "/health", key=MASTER)).json

    async def worker_pids(self) -> set[int]:
        """Of those that serve."""
        return {one["pid"] for one in (await self.health())["workers"]}

    async def counter(self, name: str) -> float:
        """Sum of a counter's series."""
        text = (await self.fresh("GET", "/metrics", key=MASTER)).body.decode()
        lines = [one for one in text.splitlines() if one.startswith((f"{name}{{", f"{name} "))]
        return sum(float(one.rpartition(" ")[2]) for one in lines)

    def reload(self, settings: dict[str, Any] | str) -> None:
        """Another file, and SIGHUP."""
        text = settings if isinstance(settings, str) else yaml.safe_dump(settings)
        self.config.write_text(text)
        self.process.send_signal(signal.SIGHUP)

    async def stop(self) -> int:
        """As a service manager does."""
        self.pool.close()
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            return await self.process.wait()


@asynccontextmanager
async def running(
    folder: Path, settings: dict[str, Any], *, workers: int = WORKERS
) -> AsyncIterator[Running]:
    """Serves when this begins."""
    (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", "gateway", "--config", str(folder / "gateway.yaml"),
            "--port", "0", "--workers", str(workers), "--json",
            stdout=asyncio.subprocess.PIPE, stderr=log, env={**os.environ},
        )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
        assert line, (folder / "log").read_text()
        gateway = Running(process, json.loads(line), folder)
        yield gateway
        await gateway.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def settings_for(provider: str, **access: Any) -> dict[str, Any]:
    """A model at a price, and a key."""
    return {
        "access": {"master_key": MASTER, "keys": {"k": {"key": KEY, **access.pop("key", {})}},
                   **access},
        "providers": {"p": {"base_url": provider}},
        "models": {"chat": [{"model": "p/m", "price": PRICE}]},
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "warning"},
    }  # fmt: skip


def ledger_rows(folder: Path, columns: str = "id, cost_nusd, outcome, status") -> list[Any]:
    """Lines of the ledger."""
    with sqlite3.connect(folder / "ledger.sqlite3") as connection:
        return connection.execute(f"SELECT {columns} FROM requests").fetchall()


async def until(condition: Any, within_s: float = 20.0) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(within_s):
        while not await condition():
            await asyncio.sleep(0.05)
