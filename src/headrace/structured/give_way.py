"""A thread that lets others go first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

NICENESS = 10
"""A tenth of the time of a thread that does not give way where both want the same processor, and
all of it where nobody else does."""


def give_way(thread_id: int | None = None) -> None:
    """Let a thread of this process give way, the calling one by default, from now on.

    Where threads have no niceness of their own nothing changes.
    """
    if sys.platform == "linux":
        own = threading.get_native_id() if thread_id is None else thread_id
        with contextlib.suppress(OSError):  # it has ended, or a sandbox keeps it as it is
            niceness = os.getpriority(os.PRIO_PROCESS, own)
            os.setpriority(os.PRIO_PROCESS, own, max(NICENESS, niceness))
