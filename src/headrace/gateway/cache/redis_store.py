"""Answers in Redis or Valkey, shared by all gateways that use it.

Every failure is a miss: a call over its time limit, a server that is down, a value that is too
large. A server that fails is left alone for a while, so that requests do not wait for it one after
another. Key names are hashes and reveal nothing; values are stored as they are.
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

_WRITE_S = 1.0  # no request waits for it
_CONNECTIONS = 32
_MOST_WRITING = 64
_MOST_WRITING_BYTES = 32 * 2**20

T = TypeVar("T")


def client_of(url: str) -> Any:
    """A client for "redis://[user:password@]host:port/number", "rediss://" or "unix://".

    Connects on its first call. Raises ConfigError if the redis package is not installed or the URL
    is invalid; the message does not contain its password.
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
            "cache.redis: the URL is invalid; it should look like redis://localhost:6379/0"
        ) from error
    return library.Redis(connection_pool=pool)


class RedisStore:
    """A CacheStore in Redis. Eviction and expiry are left to Redis (`maxmemory`,
    `maxmemory-policy`). Values larger than most_value_bytes are neither stored nor read.
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
        """See CacheStore; Redis' own clock decides what has expired."""
        name = self._name(key)
        # One byte more than allowed shows that it is too large without reading all of it.
        value = await self._bounded(
            lambda: self._client.getrange(name, 0, self._most_value_bytes), self._most_wait_s
        )
        if not isinstance(value, bytes) or not 0 < len(value) <= self._most_value_bytes:
            return None
        return value

    def put(self, key: bytes, value: bytes, *, now_s: float, expires_s: float) -> None:
        """See CacheStore. Beyond the limits on writes under way nothing is stored."""
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
        """See CacheStore. Writes under way get a moment to finish."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a gateway that was only inspected has no connections
        self._closing = loop.create_task(self._close())

    async def written(self) -> None:
        """Wait until everything put before this is in Redis or was given up."""
        if self._writing:
            await asyncio.wait(tuple(self._writing))

    async def _write(self, name: str, value: bytes, lifetime_ms: int) -> None:
        await self._bounded(lambda: self._client.set(name, value, px=lifetime_ms), _WRITE_S)

    def _wrote(self, done: asyncio.Task[None], size: int) -> None:
        self._writing.discard(done)
        self._writing_bytes -= size

    async def _close(self) -> None:
        from redis.exceptions import RedisError

        if self._writing:
            await asyncio.wait(tuple(self._writing), timeout=_WRITE_S)
        try:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()
        except (RedisError, OSError) as error:  # a server that is gone: nothing is left to close
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
                    # It dates from before a restart, as do the other idle ones.
                    await close_idle(self._client)
                    found = await call()
        except (RedisError, OSError, TimeoutError) as error:
            if self._breaker.failed():
                # The error's text may contain the URL.
                logger.warning(
                    "the cache in Redis does not answer (%s); requests go on without it",
                    type(error).__name__,
                )
            return None
        except BaseException:
            self._breaker.did_not_count()
            raise
        if self._breaker.succeeded():
            logger.info("the cache in Redis answers again")
        return found
