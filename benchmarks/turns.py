"""Calls that are timed in turns, and what the machine gave in the same minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.ops.cpu import CpuOps
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES, attention_rate_of

Name = TypeVar("Name", bound=Hashable)
Clock = Callable[[], float]

SHORTEST_S = 2e-4
"""What is timed at once lasts as long: reading a thread's own clock takes half a microsecond."""
LEAST_TURNS = 5


@dataclass(frozen=True)
class Limits:
    """bytes per second; operations per second, a multiply and an add being two.

    bf16: that of f32 at levels that have no such multiply. attention: of bf16 K and V, that of bf16
    but where its products have tiles.
    """

    read: float
    f32: float
    bf16: float
    int8: float
    attention: float

    def best(self, other: Limits) -> Limits:
        """The higher of each."""
        return Limits(
            max(self.read, other.read),
            max(self.f32, other.f32),
            max(self.bf16, other.bf16),
            max(self.int8, other.int8),
            max(self.attention, other.attention),
        )


def measured_limits(ops: CpuOps, times: int = 5) -> Limits:
    """The best of so many: a limit is what the machine can do when nothing is in the way."""

    def peak(kind: str) -> float:
        return max(ops.peak_rate(kind) or 0.0 for _ in range(times))

    read = max(ops.read_bandwidth(DRAM_FOOTPRINT_BYTES) for _ in range(times))
    f32, bf16 = peak("f32"), peak("bf16")
    return Limits(read, f32, bf16 or f32, peak("int8"), attention_rate_of(peak) or f32)


def clock_of(threads: int) -> Clock:
    """One thread's own CPU time, which other work on the machine does not add to, or the clock."""
    return time.thread_time if threads == 1 else time.perf_counter


def in_turns(
    calls: Mapping[Name, Callable[[], object]], clock: Clock, seconds: float
) -> dict[Name, list[float]]:
    """Seconds of a call, turn by turn, of calls that take turns for about `seconds` each.

    Each is called once before it is timed, so that it finds what it left itself in the caches. By
    `clock`, which decides about the end as well.
    """
    repeats = {name: _repeats(call, clock) for name, call in calls.items()}
    taken: dict[Name, list[float]] = {name: [] for name in calls}
    left, turn = seconds * len(calls), 0
    while turn < LEAST_TURNS or left > 0:
        for name, call in calls.items():
            spent = _timed(call, repeats[name], clock)
            taken[name].append(spent / repeats[name])
            left -= spent
        turn += 1
    return taken


def _timed(call: Callable[[], object], repeats: int, clock: Clock) -> float:
    call()
    begin = clock()
    for _ in range(repeats):
        call()
    return clock() - begin


def _repeats(call: Callable[[], object], clock: Clock) -> int:
    """How many calls last SHORTEST_S."""
    once = min(_timed(call, 1, clock) for _ in range(3))
    return max(1, round(SHORTEST_S / max(once, SHORTEST_S / 1000)))
