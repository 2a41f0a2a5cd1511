"""Answers in Redis or Valkey, shared by all gateways that use it.

Whatever goes wrong is a miss: a call that takes longer than its bound, a server that is gone, a
value that is too large. A server that fails is left alone for a while, so that requests do not wait
for it one after another. Names of keys are hashes and tell nothing; values lie there as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headrace.errors import ConfigError
from headrace.gateway.cache.breaker import Breaker
from headrace.gateway.redis_idle import close_idle

logger = logging.getLogger(__name__)

DEFAULT_WAIT_S = 0.05
"""A local Redis answers in well under a millisecond, one in another zone in a few."""

_WRITE_S = 1.0  # nobody waits for it
_CONNECTIONS = 32
_MOST_WRITING = 64
_MOST_WRITING_BYTES = 32 * 2**20

T = TypeVar("T")


def client_of(url: str) -> Any:
    """A client to "redis://[user:password@]host:port/number", "rediss://" or "unix://".

    Connects at the first call. ConfigError where the redis package is not installed or the URL is
    none; its password is in no error.
    """
    try:
        from redis import asyncio as library
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise ConfigError(
            "cache.store: redis needs the redis package, which is not installed; "
            "pip install 'headrace[redis]'"
        ) from error
    try:
        pool = library.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_WRITE_S,
            socket_timeout=_WRITE_S,
            socket_connect_timeout=_WRITE_S,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise ConfigError(
            "cache.redis: the URL is none; it should look like redis://localhost:6379/0"
        ) from error
    return library.Redis(connection_pool=pool)


class RedisStore:
    """A CacheStore. What is full is Redis' own matter (`maxmemory`, `maxmemory-policy`), and so is
    the end of what expires. most_value_bytes: what is larger is neither kept nor read.
    """

    def __init__(
        self,
        client: Any,
        prefix: str,
        *,
        most_value_bytes: int,
        clock_s: Callable[[], float],
        most_wait_s: float = DEFAULT_WAIT_S,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._most_value_bytes = most_value_bytes
        self._most_wait_s = most_wait_s
        self._breaker = Breaker(clock_s)
        self._writing: set[asyncio.Task[None]] = set()
        self._writing_bytes = 0
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._prefix!r})"

    async def get(self, key: bytes, now_s: float) -> bytes | None:
        """See CacheStore; Redis' own clock says what has expired."""
        name = self._name(key)
        # One byte more than there may be tells what is too large without reading all of it.
        found = await self._bounded(
            lambda: self._client.getrange(name, 0, self._most_value_bytes), self._most_wait_s
        )
        if not isinstance(found, bytes) or not 0 < len(found) <= self._most_value_bytes:
            return None
        return found

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """See CacheStore. What more than the bound on writes under way holds is not kept."""
        size = len(value)
        lifetime_ms = int((expires_s - now_s) * 1000)
        if (
            self._is_closed
            or size > self._most_value_bytes
            or lifetime_ms < 1
            or len(self._writing) >= _MOST_WRITING
            or self._writing_bytes + size > _MOST_WRITING_BYTES
        ):
            return
        self._writing_bytes += size
        writing = asyncio.get_running_loop().create_task(
            self._write(self._name(key), value, lifetime_ms)
        )
        self._writing.add(writing)
        writing.add_done_callback(lambda done: self._wrote(done, size))

    def close(self) -> None:
        """See CacheStore. What is being written has a moment to end."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # of a gateway that was made to be looked at; it has no connections
        self._closing = loop.create_task(self._close())

    async def written(self) -> None:
        """Everything put before this is in Redis, or was given up."""
        if self._writing:
            await asyncio.wait(tuple(self._writing))

    async def _write(self, name: str, value: bytes, lifetime_ms: int) -> None:
        await self._bounded(lambda: self._client.set(name, value, px=lifetime_ms), _WRITE_S)

    def _wrote(self, done: asyncio.Task[None], size: int) -> None:
        self._writing.discard(done)
        self._writing_bytes -= size

    async def _close(self) -> None:
        if self._writing:
            await asyncio.wait(tuple(self._writing), timeout=_WRITE_S)
        try:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()
        except Exception as error:  # a server that is gone: nothing is left to close
            logger.debug("the cache in Redis was not closed cleanly: %s", type(error).__name__)

    def _name(self, key: bytes) -> str:
        return f"{self._prefix}{key.hex()}"

    async def _bounded(self, call: Callable[[], Awaitable[T]], most_s: float) -> T | None:
        from redis.exceptions import ConnectionError, RedisError

        if self._is_closed or not self._breaker.lets_through():
            return None
        try:
            async with asyncio.timeout(most_s):
                try:
                    found = await call()
                except (ConnectionError, ConnectionResetError):
                    # From before a restart; the others that idle are from then too.
                    await close_idle(self._client)
                    found = await call()
        except (RedisError, OSError, TimeoutError) as error:
            if self._breaker.failed():
                # Its words may tell the URL.
                logger.warning(
                    "the cache in Redis does not answer (%s), requests go on without it",
                    type(error).__name__,
                )
            return None
        except BaseException:
            self._breaker.did_not_count()
            raise
        if self._breaker.succeeded():
            logger.info("the cache in Redis answers again")
        return found
