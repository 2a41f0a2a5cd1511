"""The end of a server: what was accepted is answered and delivered, then everything ends.

The first SIGINT or SIGTERM begins it, the second, or --shutdown-timeout, hurries it: streams that
are still open then end with an error event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from headrace.server.lifecycle.loading_line import LoadingLine

if TYPE_CHECKING:
    from headrace.http.server import HttpServer
    from headrace.server.admission.drain import Drain

logger = logging.getLogger(__name__)

# How often the line that says what is waited for is written anew.
TELL_EVERY_S = 0.5
# How often it is looked whether clients have taken what was written to them.
FLUSH_LOOK_S = 0.02


async def finish_accepted(
    drain: Drain,
    http: HttpServer,
    hurry: asyncio.Event,
    line: LoadingLine,
    *,
    timeout_s: float | None,
    slow_client_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Refuse new requests and wait until the accepted ones are answered and delivered.

    Returns early when `hurry` is set or after timeout_s. slow_client_s: how long clients may take
    to read what is left for them once everything is answered.
    """
    drain.begin()
    if drain.num_open:
        logger.info("ending: %s open", _count(drain.num_open))
    began_s = clock()
    work = asyncio.ensure_future(_answered(drain, http, line, slow_client_s))
    hurried = asyncio.ensure_future(hurry.wait())
    both: set[asyncio.Future[Any]] = {work, hurried}
    try:
        await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        line.wipe()
        work.cancel()
        hurried.cancel()
        await asyncio.gather(work, hurried, return_exceptions=True)
    if drain.num_open:
        why = "a second signal came" if hurry.is_set() else "--shutdown-timeout has passed"
        logger.warning(
            "%s still open after %.1f s; aborted: %s",
            _count(drain.num_open),
            clock() - began_s,
            why,
        )


async def _answered(
    drain: Drain, http: HttpServer, line: LoadingLine, slow_client_s: float
) -> None:
    done = asyncio.ensure_future(drain.done())
    try:
        while not done.done():
            line.say(
                f"shutting down: {_count(drain.num_open)} open; press Ctrl-C again to abort them"
            )
            await asyncio.wait({done}, timeout=TELL_EVERY_S)
    finally:
        done.cancel()
    line.wipe()
    await _within(_delivered(http), slow_client_s)


def _count(number: int) -> str:
    return "1 request is" if number == 1 else f"{number} requests are"


async def _delivered(http: HttpServer) -> None:
    """Wait until no reply waits in this process for its client to read."""
    while http.unwritten_bytes:
        await asyncio.sleep(FLUSH_LOOK_S)


async def _within(work: Coroutine[Any, Any, None], seconds: float) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        logger.warning("clients did not read their replies within %g s", seconds)
