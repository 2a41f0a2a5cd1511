"""A thread that lets others go first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading


def give_way(thread_id: int | None = None) -> None:
    """Let a thread of this process, the calling one by default, run where no other wants the
    processor, from now on. One that only has less of its time still ends the turns of others.

    Where threads have no priority of their own nothing changes.
    """
    if sys.platform == "linux":
        own = threading.get_native_id() if thread_id is None else thread_id
        with contextlib.suppress(OSError):  # it has ended, or a sandbox keeps it as it is
            os.sched_setscheduler(own, os.SCHED_IDLE, os.sched_param(0))
