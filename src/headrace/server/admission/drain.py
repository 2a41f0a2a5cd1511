"""Open requests, and the end: what was accepted goes on, what comes later is refused.

A request is accepted when its call begins while the server takes work; from then on it counts until
its reply is written, whether it waits, runs or streams. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.server.api_error import server_is_ending


class Drain:
    """Counts calls for generation; after `begin` it lets no more of them in."""

    def __init__(self) -> None:
        self.num_open = 0
        """Accepted requests whose reply is not written yet."""
        self.begun = False
        """Whether the server is ending."""
        self._emptied: asyncio.Event | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """For as long as a request is answered; ApiError 503 once the server is ending."""
        if self.begun:
            raise server_is_ending()
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1
            if self._emptied is not None and self.num_open == 0:
                self._emptied.set()

    def begin(self) -> None:
        """Accept nothing any more. Idempotent."""
        self.begun = True

    async def done(self) -> None:
        """Wait until what was accepted is answered."""
        self._emptied = self._emptied or asyncio.Event()
        if self.num_open:
            await self._emptied.wait()
