"""Signals as a wish to stop: heard by the event loop, and outside of one."""

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
    loop is, and be shown by whoever runs there. Within `ended_by_signals` it is raised all the
    same, as something has to be ended. To be used in a running event loop; elsewhere than in the
    main thread nothing is heard. Afterwards the handlers are those of before, also where the block
    raises: a loop that is closed with its handlers on leaves a process deaf to Ctrl-C.
    """
    stopped = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    loop = asyncio.get_running_loop()

    before = {number: signal.getsignal(number) for number in _NUMBERS}

    def come() -> None:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
            signal.signal(number, _raise_exit if before[number] is _raise_exit else _leave)
        stopped.set()
        stop()

    for number in _NUMBERS:
        loop.add_signal_handler(number, come)
    try:
        yield stopped
    finally:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP, as Ctrl-C, `timeout` and a closed terminal send them, leave the
    block by SystemExit with the status that shells name it by, so that what was begun in it is
    ended. What is ignored stays so. In the main thread; elsewhere nothing is heard."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (*_NUMBERS, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _raise_exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)  # as shells say it: 130 of Ctrl-C
