"""A worker as its parent sees it: its link, and its latest figures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link
from headrace.gateway.workers.messages import Message

if TYPE_CHECKING:
    from headrace.gateway.workers.shared import Shared


class Member:
    """The handler of one worker's link. `number` is of its place, which its successors take over.

    `owner` is the prefix of its reservations' ids, None while it has none. `open_breakers` holds
    the targets whose breaker is open in it.
    """

    def __init__(self, number: int, pid: int, shared: Shared) -> None:
        self.number = number
        self.pid = pid
        self.link: Link | None = None
        self.owner: str | None = None
        self.open_breakers: set[str] = set()
        self.figures: messages.Figures | None = None
        self.serves: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shared = shared

    @property
    def is_serving(self) -> bool:
        """Whether it answers requests, as far as is known."""
        return self.serves.done() and self.link is not None and not self.link.lost

    def on_news(self, message: Message) -> None:
        """See link.Handler."""
        if isinstance(message, messages.Serves):
            if not self.serves.done():
                self.serves.set_result(None)
        elif isinstance(message, messages.ReservesAs):
            self.owner = message.owner
        elif isinstance(message, messages.Figures):
            self.figures = message
        else:
            self._shared.on_news(self, message)

    def on_question(self, message: Message) -> Message | Awaitable[Message]:
        """See link.Handler."""
        return self._shared.on_question(self, message)

    def on_lost(self) -> None:
        """See link.Handler."""
        if not self.serves.done():
            self.serves.cancel()
        self._shared.on_gone(self)
