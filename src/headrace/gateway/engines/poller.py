"""Polls engines' /metrics: one task for each engine, one request at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from headrace.gateway.engines.reading import engine_reading
from headrace.gateway.engines.state import EngineState
from headrace.gateway.targets.auth import Outgoing
from headrace.gateway.targets.provider import Provider
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.request import request_bytes

logger = logging.getLogger(__name__)

# vLLM's are about 100 kB.
_MOST_BYTES = 4 * 2**20
_WITHIN_S = 2.0
_TIMEOUTS = Timeouts(_WITHIN_S, _WITHIN_S, _WITHIN_S)
_S_PER_NS = 1e-9


class EnginePollers:
    """The polling of engines. `interval_s` names the providers to poll. `count` is called after
    each reading with the provider and whether it succeeded."""

    def __init__(
        self,
        state: EngineState,
        providers: Mapping[str, Provider],
        interval_s: Mapping[str, float],
        clock_ns: Callable[[], int],
        count: Callable[[str, bool], None] | None = None,
    ) -> None:
        self._count = count
        self._state = state
        self._providers = providers
        self._interval_s = interval_s
        self._clock_ns = clock_ns
        self._tasks: list[asyncio.Task[None]] = []
        self._failing: set[str] = set()

    def start(self) -> None:
        """Start polling; call from the serving loop."""
        if not self._tasks:
            self._tasks = [asyncio.ensure_future(self._poll(name)) for name in self._interval_s]

    def stop(self) -> None:
        """Stop polling."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def read_all(self) -> None:
        """Read each once, concurrently."""
        await asyncio.gather(*(self.read(name) for name in self._interval_s))

    async def read(self, name: str) -> None:
        """Read one engine once. A failure is logged once until a reading succeeds."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                text = await self._text(self._providers[name])
        except TimeoutError:
            self._failed(name, f"no answer within {_WITHIN_S:g} s")
        except UpstreamError as error:
            self._failed(name, str(error))
        else:
            reading = engine_reading(text, self._clock_ns() * _S_PER_NS)
            if reading is None:
                self._failed(name, "they lack the numbers of running and waiting requests")
                return
            self._failing.discard(name)
            self._state.take(name, reading)
            if self._count is not None:
                self._count(name, True)

    async def _poll(self, name: str) -> None:
        while True:
            try:
                await self.read(name)
            except Exception:
                # A fault of the gateway at one engine: go on reading it.
                logger.exception("the metrics of %s could not be read", name)
            await asyncio.sleep(self._interval_s[name])

    async def _text(self, provider: Provider) -> str:
        """The text of its metrics. Raises UpstreamError."""
        origin = provider.base.origin
        path = provider.base.path.removesuffix("/v1") + "/metrics"
        headers = provider.headers
        credential = provider.auth.pick(self._clock_ns() * _S_PER_NS)
        if credential is not None:
            outgoing = Outgoing("GET", origin.host_header, path, headers, b"")
            headers += await credential.headers(outgoing)
        reply = await provider.pool.send(request_bytes("GET", origin, path, headers), _TIMEOUTS)
        try:
            body = await reply.body(_MOST_BYTES)
        finally:
            reply.abort()
        if reply.status != 200:
            raise UpstreamError("protocol", f"GET {path} returned status {reply.status}")
        return body.decode("utf-8", "replace")

    def _failed(self, name: str, why: str) -> None:
        if self._count is not None:
            self._count(name, False)
        if name not in self._failing:
            self._failing.add(name)
            logger.warning("the metrics of engine %s cannot be read: %s", name, why)
