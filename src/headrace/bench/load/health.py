"""How the load generator fares while it runs: its loop's lag, its CPU, its garbage collections.

A timer of the client's own pacer is due every TICK_NS; how late it is called is how late anything
else on that loop is noticed. Samples are thinned evenly where a run is long. In a
garbage collection no chunk gets its time; the interpreter says when one begins and ends.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

from headrace.bench.record import Collections
from headrace.bench.timer import Deadline, Timer

TICK_NS = 20_000_000
# An hour of them; then every second one is dropped and ticks come half as often.
MAX_SAMPLES = 180_000
# The oldest generation of the collector: with it all are collected.
_FULL = 2


class LoopWatch:
    """A monitor of the event loop's lag, from `start` to `stop`; `lags_ns` and `cpu_share` are
    there afterwards.
    """

    def __init__(
        self,
        timer: Timer,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._timer = timer
        self._clock_ns = clock_ns
        self._cpu_s = cpu_s
        self._tick_ns = TICK_NS
        self._deadline: Deadline | None = None
        self.lags_ns: list[int] = []
        self.cpu_share: float | None = None

    def start(self) -> None:
        """Begin."""
        self._began_ns = self._clock_ns()
        self._began_cpu_s = self._cpu_s()
        self._ask(self._began_ns + self._tick_ns)

    def stop(self) -> None:
        """End; the share is of the time between."""
        if self._deadline is not None:
            self._deadline.cancel()
        wall_s = (self._clock_ns() - self._began_ns) / 1e9
        if wall_s > 0:
            self.cpu_share = (self._cpu_s() - self._began_cpu_s) / wall_s

    def _ask(self, due_ns: int) -> None:
        self._deadline = self._timer.call_at_ns(due_ns, lambda: self._tick(due_ns))

    def _tick(self, due_ns: int) -> None:
        now_ns = self._clock_ns()
        self.lags_ns.append(max(0, now_ns - due_ns))
        if len(self.lags_ns) >= MAX_SAMPLES:
            del self.lags_ns[::2]
            self._tick_ns *= 2
        # Ticks that were missed altogether are one long lag, not many.
        self._ask(max(due_ns + self._tick_ns, now_ns + 1))


class CollectionWatch:
    """A record of how long the interpreter's garbage collections take, from `start` to `stop`, and
    keeps full ones short.

    What a full collection leaves is not looked at again until somebody unfreezes it: the records
    of a run stay to its end, and walking through all of them would delay sends more each time.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._began_ns: int | None = None
        self.collections = Collections(0, 0, 0)

    def start(self) -> None:
        """Begin."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """End; may be called again."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._clock_ns()
            return
        # One that had begun before anybody watched has no beginning.
        if self._began_ns is not None:
            took_ns = self._clock_ns() - self._began_ns
            self._began_ns = None
            self.collections = added([self.collections, Collections(1, took_ns, took_ns)])
        if info["generation"] == _FULL:
            gc.freeze()


def added(of: Iterable[Collections]) -> Collections:
    """Of several processes, or one after the other."""
    every = list(of)
    return Collections(
        count=sum(one.count for one in every),
        total_ns=sum(one.total_ns for one in every),
        longest_ns=max((one.longest_ns for one in every), default=0),
    )
