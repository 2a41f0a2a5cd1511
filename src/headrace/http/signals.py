"""SIGINT and SIGTERM, as events of the loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Signals(NamedTuple):
    """The signals that end a server: the first sets `stop`, the second `hurry`."""

    stop: asyncio.Event
    hurry: asyncio.Event


@contextmanager
def signals() -> Iterator[Signals]:
    """Takes SIGINT and SIGTERM over; to be used in the running event loop."""
    heard = Signals(asyncio.Event(), asyncio.Event())

    def note() -> None:
        (heard.hurry if heard.stop.is_set() else heard.stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, note)
    try:
        yield heard
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
