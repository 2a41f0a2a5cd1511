"""Periodic upkeep, about once a second, as long as a process serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

TICK_S = 1.0

Step = Callable[[], Awaitable[None] | None]


async def tick(*steps: Step, every_s: float = TICK_S) -> None:
    """Run all steps in each round, until cancelled.

    An error in a step neither ends the rounds nor affects other steps. It is logged once for each
    type of error, as it may well recur in each round.
    """
    logged: set[tuple[int, type[Exception]]] = set()
    while True:
        await asyncio.sleep(every_s)
        for number, step in enumerate(steps):
            try:
                waits = step()
                if waits is not None:
                    await waits
            except Exception as error:
                if (number, type(error)) not in logged:
                    logged.add((number, type(error)))
                    logger.exception("upkeep failed and will be retried; this is logged once")
