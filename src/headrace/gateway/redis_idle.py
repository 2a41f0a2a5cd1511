"""Closes idle Redis connections after one was found dead: all date from before a restart."""

from __future__ import annotations

import asyncio
from typing import Any


async def close_idle(client: Any) -> None:
    """Close the idle connections of a redis.asyncio client; errors are ignored, as the next call
    connects again.

    Several tasks may wait for one connection to close; if one of them is cancelled, all get a
    CancelledError, which is raised here only for this task's own cancellation.
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
