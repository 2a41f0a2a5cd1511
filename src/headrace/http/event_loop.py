"""An event loop of a command's own, and Ctrl-C while it closes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_in_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """What `main` returns, run by an event loop (uvloop) of its own.

    A Ctrl-C that comes while the loop closes is raised as KeyboardInterrupt once it has closed.
    """
    import asyncio  # what needs no loop starts without both

    import uvloop

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        return runner.run(main)
    finally:
        with _deferred_interrupt():
            runner.close()


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Threads of a loop report to it until it has waited for them: nothing may cut that short."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    arrived = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: arrived.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if arrived.is_set():
        raise KeyboardInterrupt
