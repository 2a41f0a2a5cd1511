"""A command's event loop closes whole, whatever comes while it does."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from headrace.http.event_loop import run_in_loop


def test_it_returns_what_the_coroutine_returns() -> None:
    async def main() -> int:
        return 3

    assert run_in_loop(main()) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_ctrl_c_while_it_closes_waits_until_it_has_closed() -> None:
    """A thread of the loop that is still at work then reports to a loop that is there."""
    begun = threading.Event()
    before = set(threading.enumerate())

    def work() -> None:
        begun.set()
        time.sleep(0.2)

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.to_thread(begun.wait)
        # Heard once the main task has ended and the loop waits for its threads.
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        run_in_loop(main())
    assert not set(threading.enumerate()) - before
