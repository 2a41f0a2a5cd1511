"""`headrace bench mock`: one endpoint on a loop of its own until a signal comes."""

from __future__ import annotations

import gc
from collections.abc import Callable

from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.signals import stops_at_signal
from headrace.http.event_loop import run_in_loop


def run_mock(
    settings: MockSettings, host: str, port: int, announce: Callable[[str], None]
) -> dict[str, int]:
    """Serve until SIGINT or SIGTERM; what became of requests, by name.

    announce: is given the URL once clients can connect. ConfigError where it cannot listen.
    """
    return run_in_loop(_serve(MockEndpoint(settings, host=host, port=port), announce))


async def _serve(endpoint: MockEndpoint, announce: Callable[[str], None]) -> dict[str, int]:
    with stops_at_signal(lambda: None) as stopped:
        async with endpoint as url:
            # What is loaded stays: a collection of it would delay chunks by milliseconds.
            gc.freeze()
            announce(url)
            await stopped.wait()
    return dict(endpoint.outcomes)
