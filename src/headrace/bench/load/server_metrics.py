"""What the server says of itself, read before, during and after a run and kept as it was said, but
for secrets.

A server without /metrics is no failure: then there are no readings. Readings go over a connection
of their own. What is kept is bounded: where the texts exceed KEPT_BYTES every second one is dropped
and reading goes on half as often; the first and the last stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from headrace.bench.client.endpoints import Endpoint, get_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.secrets import blotted_metrics

METRICS_PATH = "/metrics"
READ_EVERY_S = 1.0
KEPT_BYTES = 64 * 2**20
# A server's exporter says less than this, or is not one.
MAX_READING_BYTES = 4 * 2**20
_TIMEOUT_S = 5.0


class MetricsWatch:
    """`readings` has (clock in ns, text); call `start`, then `stop`, on one event loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        path: str = METRICS_PATH,
        *,
        every_s: float = READ_EVERY_S,
        kept_bytes: int = KEPT_BYTES,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.readings: list[tuple[int, str]] = []
        self._request = get_request(endpoint, path)
        self._secrets = endpoint.secrets
        self._every_s = every_s
        self._kept_bytes = kept_bytes
        self._held_bytes = 0
        self._clock_ns = clock_ns
        limits = ClientLimits(
            max_connections=1,
            connect_timeout_s=_TIMEOUT_S,
            request_timeout_s=_TIMEOUT_S,
            max_reply_bytes=MAX_READING_BYTES,
        )
        self._client = LoadClient(self._request.origin, limits, clock_ns=clock_ns)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """Read once, and then again and again; False where the server has nothing to say."""
        if not await self._read():
            return False
        self._task = asyncio.create_task(self._go_on())
        return True

    async def stop(self) -> None:
        """Read a last time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._read()
        await self._client.close()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self._read()

    async def _read(self) -> bool:
        raw = await self._client.send(self._request)
        kind = raw.headers.get("content-type", "").lower()
        text = raw.body.decode("utf-8", errors="replace")
        if raw.failure is not None or raw.status != 200 or not text or "html" in kind:
            return False
        text = blotted_metrics(text, self._secrets)
        self.readings.append((raw.end_ns, text))
        self._held_bytes += len(text)
        if self._held_bytes > self._kept_bytes and len(self.readings) > 2:
            # The last is kept only until the next one comes.
            self.readings = [*self.readings[:-1:2], self.readings[-1]]
            self._held_bytes = sum(len(text) for _, text in self.readings)
            self._every_s *= 2
        return True
