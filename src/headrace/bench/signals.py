"""SIGINT and SIGTERM as a wish to stop, heard by the event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stops_at_signal(stop: Callable[[], None]) -> Iterator[asyncio.Event]:
    """The first SIGINT or SIGTERM within calls `stop` and sets the event that is given.

    A second one ends the process at once and says nothing: an exception would come up wherever the
    loop is, and be shown by whoever runs there. To be used in a running event loop; elsewhere than
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
            signal.signal(number, _leave)
        stopped.set()
        stop()

    before = {number: signal.getsignal(number) for number in _NUMBERS}
    for number in _NUMBERS:
        loop.add_signal_handler(number, come)
    try:
        yield stopped
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
            if signal.getsignal(number) is _leave:
                signal.signal(number, before[number])


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)  # as shells say it: 130 of Ctrl-C
