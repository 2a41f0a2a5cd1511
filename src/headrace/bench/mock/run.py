"""`headrace bench mock`: one endpoint on a loop of its own until a signal comes."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable

import uvloop

from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings


def run_mock(
    settings: MockSettings, host: str, port: int, announce: Callable[[str], None]
) -> dict[str, int]:
    """Serve until SIGINT or SIGTERM; what became of requests, by name.

    announce: is given the URL once clients can connect. ConfigError where it cannot listen.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(MockEndpoint(settings, host=host, port=port), announce))


async def _serve(endpoint: MockEndpoint, announce: Callable[[str], None]) -> dict[str, int]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with endpoint as url:
        # What is loaded stays: a collection that looks at it would delay chunks by milliseconds.
        gc.freeze()
        announce(url)
        await stop.wait()
    return dict(endpoint.outcomes)
