"""An event loop of a command's own, and Ctrl-C while it closes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.http.deferred_interrupt import DeferredInterrupt

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
        with DeferredInterrupt():
            runner.close()
