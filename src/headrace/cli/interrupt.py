"""Ctrl-C before a command runs: the process ends at once and says nothing.

Python would show where in the imports it was. Until a command has begun nothing is open that would
have to be closed.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

# 128 + SIGINT: what shells say of a process that Ctrl-C ended.
INTERRUPTED = 130


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def leave_quietly() -> None:
    """From now on SIGINT ends the process, unless whoever started it had it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_again() -> None:
    """From now on SIGINT is KeyboardInterrupt, as ever."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
