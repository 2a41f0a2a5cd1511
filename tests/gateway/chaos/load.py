"""Clients that keep their connection and ask one request after another, and what they were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headrace.gateway.upstream.errors import UpstreamError
from tests.gateway.workers.gateway_process import CHAT, KEY, Running, Told, until

_CHATS = "/v1/chat/completions"
_DONE = b"data: [DONE]"


class Load:
    """whole: when each answer that came to its end did, by its id. cut: ids of streams that ended
    with an error. statuses: of all that were told. broken: connections, in the midst of a request.
    """

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self.going = True
        self.statuses: Counter[int] = Counter()
        self.whole: dict[str, float] = {}
        self.cut: set[str] = set()
        self.broken = 0

    async def client(self, key: str, *asked: dict[str, Any]) -> None:
        """What is asked comes in turn."""
        pool = self._gateway.new_pool()
        turn = 0
        while self.going:
            body = {**CHAT, **asked[turn % len(asked)]}
            turn += 1
            try:
                told = await self._gateway.send("POST", _CHATS, body, key, pool)
            except UpstreamError:
                self.broken += 1
                continue
            self._hear(told, stream=body.get("stream", False))
            if told.status != 200:
                await asyncio.sleep(0.02)
        pool.close()

    def _hear(self, told: Told, *, stream: bool) -> None:
        self.statuses[told.status] += 1
        id = told.headers["x-request-id"]
        assert id not in self.whole
        if told.status == 200 and stream and _DONE not in told.body:
            self.cut.add(id)
        elif told.status == 200:
            self.whole[id] = time.monotonic()

    async def more(self, whole: int, *, within_s: float = 30.0) -> float:
        """Returns when so many more were answered whole: seconds since the call."""
        began_s, wanted = time.monotonic(), len(self.whole) + whole

        async def enough() -> bool:
            return len(self.whole) >= wanted

        await until(enough, within_s)
        return time.monotonic() - began_s

    def between(self, from_s: float, until_s: float) -> int:
        """Answers that came to their end then."""
        return sum(from_s < at_s < until_s for at_s in self.whole.values())


@asynccontextmanager
async def load(
    gateway: Running, clients: int, asked: Sequence[dict[str, Any]], key: str = KEY
) -> AsyncIterator[Load]:
    """asked: what each client asks, in turn. All have what they asked for when it ends."""
    found = Load(gateway)
    tasks = [asyncio.ensure_future(found.client(key, *asked)) for _ in range(clients)]
    try:
        yield found
        found.going = False
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
