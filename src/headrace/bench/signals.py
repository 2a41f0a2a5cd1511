"""SIGINT and SIGTERM as a wish to stop, heard by the event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stops_at_signal(stop: Callable[[], None]) -> Iterator[asyncio.Event]:
    """The first SIGINT or SIGTERM within calls `stop` and sets the event that is given.

    A second one does what it does without this. To be used in a running event loop; elsewhere than
    in the main thread nothing is heard. Afterwards the loop handles neither, also where the block
    raises: a loop that is closed with its handlers on leaves a process deaf to Ctrl-C.
    """
    stopped = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    loop = asyncio.get_running_loop()

    def come() -> None:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
        stopped.set()
        stop()

    for number in _NUMBERS:
        loop.add_signal_handler(number, come)
    try:
        yield stopped
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
