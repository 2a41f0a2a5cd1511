"""What is needed for a provider whose answers take more than one request."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine

from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import PoolLimits
from headrace.gateway.upstream.origin import Origin
from headrace.gateway.upstream.pool import Pool
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.steps import AnswerSteps

logger = logging.getLogger(__name__)

# Streams are on a few hosts of the provider; a reply names the host.
_MOST_POOLS = 8
_ERRAND_S = 75.0


class InSteps:
    """The steps of answers at one provider, and connections to its other hosts.

    `steps` makes the steps of a call for a model; it raises RequestError. `tls` is for addresses
    that a reply names. `sleep` waits between two requests.
    """

    def __init__(
        self,
        steps: Callable[[ChatCall, str], AnswerSteps],
        limits: PoolLimits,
        tls: ssl.SSLContext | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.steps = steps
        self.sleep = sleep
        self._limits = limits
        self._tls = tls
        self._pools: dict[Origin, Pool] = {}
        self._errands: set[asyncio.Task[None]] = set()

    def pool(self, origin: Origin) -> Pool:
        """Connections to an origin other than the provider's own."""
        pool = self._pools.get(origin)
        if pool is None:
            if len(self._pools) >= _MOST_POOLS:
                self._pools.pop(next(iter(self._pools))).close()
            pool = self._pools[origin] = Pool(origin, self._limits, tls=self._tls)
        return pool

    def errand(self, what: Coroutine[None, None, None]) -> None:
        """Run it after its request has ended; errors are logged."""
        task = asyncio.get_running_loop().create_task(self._run(what))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    @property
    def errands(self) -> int:
        """The number of errands under way."""
        return len(self._errands)

    async def drain(self, within_s: float) -> None:
        """Wait up to `within_s` for the errands under way."""
        if self._errands:
            await asyncio.wait(self._errands, timeout=within_s)

    def close(self) -> None:
        """Close idle connections."""
        for pool in self._pools.values():
            pool.close()

    async def _run(self, what: Coroutine[None, None, None]) -> None:
        try:
            async with asyncio.timeout(_ERRAND_S):
                await what
        except (UpstreamError, TimeoutError) as error:
            logger.warning("an unwanted answer could not be cancelled: %s", error)
