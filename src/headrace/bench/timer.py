"""Deadlines to the tenth of a millisecond on an event loop.

Loops round waits to whole milliseconds, which is as much as what a benchmark wants to measure.
On Linux a timer of the kernel (timerfd) wakes the loop instead; elsewhere the loop's own timer
does. Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns`), so a late
call moves none of those behind it. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

# <sys/timerfd.h>: flags of timerfd_create and of timerfd_settime, <time.h>: the clock.
_CLOCK_MONOTONIC = 1
_NONBLOCK = 0o4000
_CLOEXEC = 0o2000000
_ABSOLUTE = 1


class Deadline:
    """A call to come; `cancel` forgets it."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """The call will not be made."""
        self.callback = None


class _Alarm(Protocol):
    """An alarm that goes off once, at or after the last time that was set."""

    def set(self, when_ns: int) -> None: ...

    def close(self) -> None: ...


class Timer:
    """A timer that calls back at absolute times; one per event loop, made where the loop runs.

    Calls due at the same time are made in the order in which they were asked for. One that is asked
    for by another is made in a later round of the loop, however long ago it was due.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._clock_ns = clock_ns
        self._heap: list[tuple[int, int, Deadline]] = []
        self._asked = 0
        self._set_ns: int | None = None
        self._closed = False
        self._alarm = _alarm(loop, clock_ns, self._fire)

    def call_at_ns(self, when_ns: int, callback: Callable[[], None]) -> Deadline:
        """Have `callback` called at `when_ns`, or soon where that is past."""
        deadline = Deadline(callback)
        self._asked += 1
        heapq.heappush(self._heap, (when_ns, self._asked, deadline))
        if self._set_ns is None or when_ns < self._set_ns:
            self._arm()
        return deadline

    def close(self) -> None:
        """Forget all calls. The timer cannot be used any more."""
        self._closed = True
        self._heap.clear()
        self._alarm.close()

    def _arm(self) -> None:
        self._set_ns = self._heap[0][0]
        self._alarm.set(self._set_ns)

    def _fire(self) -> None:
        # Calls may ask for more: those wait for the next round, due or not, so that the loop reads
        # from its sockets in between. None of them may set the alarm meanwhile.
        now = self._clock_ns()
        self._set_ns = 0
        heap = self._heap
        due: deque[tuple[int, int, Deadline]] = deque()
        while heap and heap[0][0] <= now:
            due.append(heapq.heappop(heap))
        try:
            while due and not self._closed:
                callback = due.popleft()[2].callback
                if callback is not None:
                    callback()
        finally:
            if not self._closed:
                for left in due:  # behind one that failed
                    heapq.heappush(heap, left)
                while heap and heap[0][2].callback is None:
                    heapq.heappop(heap)
                self._set_ns = None
                if heap:
                    self._arm()


class _LoopAlarm:
    """The loop's own timer: of a resolution of about a millisecond."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock_ns: Callable[[], int],
        fire: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when_ns: int) -> None:
        self.close()
        wait_s = max(0, when_ns - self._clock_ns()) / 1e9
        self._handle = self._loop.call_later(wait_s, self._fire)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Itimerspec(ctypes.Structure):
    """struct itimerspec: interval and value, each of seconds and nanoseconds."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("again_s", "again_ns", "at_s", "at_ns"))


class _KernelAlarm:
    """timerfd. Setting it forgets that it has fired, so it need not be read."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, libc: ctypes.CDLL, fire: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._settime = libc.timerfd_settime
        self._spec = _Itimerspec()
        self._spec_at = ctypes.byref(self._spec)
        self._fire = fire
        self._file = libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._file, self._fired)

    def _fired(self) -> None:
        # Without a next deadline nothing would take the readiness back.
        self._set(0)
        self._fire()

    def set(self, when_ns: int) -> None:
        self._set(max(when_ns, 1))  # 0 would switch it off

    def _set(self, when_ns: int) -> None:
        spec = self._spec
        spec.at_s, spec.at_ns = divmod(when_ns, 1_000_000_000)
        self._settime(self._file, _ABSOLUTE, self._spec_at, None)

    def close(self) -> None:
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1


def _alarm(
    loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int], fire: Callable[[], None]
) -> _Alarm:
    """The most precise alarm there is; the kernel's knows only the real clock."""
    if sys.platform == "linux" and clock_ns is time.monotonic_ns:
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "timerfd_create"):
            try:
                return _KernelAlarm(loop, libc, fire)
            except OSError:  # no file left, or a sandbox without timers: the loop's will do
                pass
    return _LoopAlarm(loop, clock_ns, fire)
