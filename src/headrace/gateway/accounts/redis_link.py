"""The way to Redis: scripts by their hash, every call bounded in time, one error for every loss."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from headrace.errors import ConfigError, HeadraceError
from headrace.gateway.in_time import InTime
from headrace.gateway.redis_idle import close_idle

DEFAULT_TIMEOUT_S = 0.25
# Calls at once; more wait here. With 32, a first burst of requests on a busy machine spent half a
# second opening connections, which was taken for a Redis that does not answer. With 8, a Redis that
# answers within a millisecond is asked 8,000 times a second by each process.
_AT_ONCE = 8
# One that was cancelled may keep its connection for a moment.
_CONNECTIONS = 2 * _AT_ONCE

T = TypeVar("T")


class RedisLostError(HeadraceError):
    """A call that Redis did not answer in time. Whether Redis carried it out is not known."""


class RedisLink(Protocol):
    """The operations on Redis that counters need. All of them raise RedisLostError.

    If a connection breaks, a call is repeated once on a new one, so every call must be idempotent.
    """

    async def run(
        self, script: str, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Sequence[str]:
        """Run a Lua script; its table of texts, or a list of one for a single value."""

    async def set_first(self, key: str, lifetime_ms: int | None) -> bool:
        """Whether the key was not there and is now; done twice, it may say that it was."""

    async def evicts(self) -> str | None:
        """The policy by which Redis evicts keys when its memory is full; None if it evicts none, or
        does not report it."""

    async def ping(self) -> None:
        """Return if Redis answers."""

    async def close(self) -> None:
        """Close all connections."""


def connect(url: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> RedisLink:
    """A link to "redis://[user:password@]host:port/number", "rediss://" or "unix://".

    Connects at the first call. ConfigError where the redis package is not installed or the URL is
    none; its password is in no error.
    """
    try:
        from redis import asyncio as library
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError as error:
        raise ConfigError(
            "counting in Redis needs the redis package, which is not installed; "
            "pip install 'headrace[redis]'"
        ) from error
    try:
        pool = library.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=timeout_s,
            # Ours are below: whether a call is late or may be made again the library cannot know.
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
    except ValueError as error:
        raise ConfigError(
            "the URL of Redis is not valid; it should look like redis://localhost:6379/0"
        ) from error
    return _Link(library.Redis(connection_pool=pool), timeout_s)


class _Link:
    """A RedisLink over the redis package."""

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._digests: dict[str, str] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._losses = 0

    def __repr__(self) -> str:
        return "RedisLink()"

    async def run(
        self, script: str, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Sequence[str]:
        """See RedisLink."""
        reply = await self._bounded(lambda: self._run(script, keys, arguments))
        return reply if isinstance(reply, list) else [str(reply)]

    async def set_first(self, key: str, lifetime_ms: int | None) -> bool:
        """See RedisLink."""
        call = self._client.set
        return bool(await self._bounded(lambda: call(key, "1", nx=True, px=lifetime_ms)))

    async def evicts(self) -> str | None:
        """See RedisLink."""
        memory = await self._bounded(self._memory)
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        return None if not memory.get("maxmemory") or policy == "noeviction" else policy

    async def ping(self) -> None:
        """See RedisLink."""
        await self._bounded(self._client.ping)

    async def close(self) -> None:
        """See RedisLink."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _memory(self) -> dict[str, Any]:
        from redis.exceptions import ResponseError

        try:
            return dict(await self._client.info("memory"))
        except ResponseError:  # a user who may not ask
            return {}

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        from redis.exceptions import NoScriptError

        digest = self._digests.get(script)
        if digest is None:
            digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
            self._digests[script] = digest
        try:
            return await self._client.evalsha(digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.eval(script, len(keys), *keys, *arguments)

    async def _bounded(self, call: Callable[[], Awaitable[T]]) -> T:
        from redis.exceptions import ConnectionError, RedisError

        losses = self._losses
        # Who waits here waits for our own turn, which says nothing of Redis.
        async with self._room:
            if self._losses != losses:
                raise RedisLostError(
                    "Redis: the connection was lost while a call waited for its turn"
                )
            try:
                # Twice: once to connect, once to be answered.
                async with InTime(2 * self._timeout_s):
                    try:
                        return await call()
                    except (ConnectionError, ConnectionResetError):
                        # From before a restart; the others that idle are from then too.
                        await close_idle(self._client)
                        return await call()
            except (RedisError, OSError, TimeoutError) as error:
                self._losses += 1
                raise RedisLostError(f"Redis: {type(error).__name__}") from error
