"""`headrace gateway` as a process of its own, in front of a provider of the test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

WAIT_S = 60
STEP_S = 0.05


class Process:
    """A gateway that serves. announced: the line it printed."""

    def __init__(self, process: asyncio.subprocess.Process, announced: dict[str, Any]) -> None:
        self.process = process
        self.announced = announced
        self.url: str = announced["url"]
        self.heard = ""
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.heard += line.decode()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def has_logged(self, words: str) -> None:
        """Wait until its log has them."""
        for _ in range(int(WAIT_S / STEP_S)):
            if words in self.heard:
                return
            await asyncio.sleep(STEP_S)
        raise AssertionError(f"{words!r} is not in {self.heard!r}")

    async def takes_no_more(self) -> None:
        """Wait until nobody can connect."""
        host, port = self.url.removeprefix("http://").split(":")
        for _ in range(int(WAIT_S / STEP_S)):
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionError:
                return
            writer.close()
            await asyncio.sleep(STEP_S)
        raise AssertionError("it still takes connections")

    async def ended(self) -> int:
        """Its exit code."""
        code = await asyncio.wait_for(self.process.wait(), WAIT_S)
        await self._reading
        return code

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=WAIT_S)


@asynccontextmanager
async def started(config: Path) -> AsyncIterator[Process]:
    """Until the end of the test, or until it was ended by it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "gateway", "--config", str(config),
        "--port", "0", "--json",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stderr is not None
        line = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
        assert line, (await process.stderr.read()).decode()
        yield Process(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
