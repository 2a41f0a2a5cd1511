"""Connections to Redis that idle, after one was found dead: all are from before a restart."""

from __future__ import annotations

import asyncio
from typing import Any


async def close_idle(client: Any) -> None:
    """client: of redis.asyncio. What closing them says is of no matter: the next call opens anew.

    Several tasks may wait for one connection to close; if one of them is cancelled all of them hear
    a CancelledError, which is raised here only where it is this task's own.
    """
    from redis.exceptions import RedisError

    try:
        await client.connection_pool.disconnect(inuse_connections=False)
    except (RedisError, OSError):
        return
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
