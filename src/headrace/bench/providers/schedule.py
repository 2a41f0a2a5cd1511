"""When rounds are due: slots of one grid in wall-clock time, and who comes first in a round.

What was missed, by a round that took too long or by a process that was not there, is missed: the
next round is the next slot whose time has not passed, so that no burst makes up for it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple


class Schedule(NamedTuple):
    """A schedule whose slot k is due at origin_at + k · interval_s, in seconds since the epoch."""

    origin_at: float
    interval_s: float
    duration_s: float | None = None

    def due_at(self, slot: int) -> float:
        """When that slot's round is to begin."""
        return self.origin_at + slot * self.interval_s

    def next_slot(self, now: float, after: int | None = None) -> int | None:
        """The first slot that is not past, and behind `after`; None where the schedule has ended.

        A due time of this very moment is not past.
        """
        # Seconds since the epoch have no more digits than that.
        behind = math.ceil(round((now - self.origin_at) / self.interval_s, 6))
        slot = max(0, behind, 0 if after is None else after + 1)
        if self.duration_s is not None and slot * self.interval_s >= self.duration_s:
            return None
        return slot

    def is_running(self, slot: int, now: float) -> bool:
        """Whether it is still that slot's time: the next one's has not come."""
        return self.due_at(slot) <= now < self.due_at(slot + 1)


def order(names: Sequence[str], number: int, seed: int) -> list[str]:
    """The names as round `number` takes them.

    In every len(names) rounds each is once at every place: a shuffled list is rotated by one from
    round to round, and shuffled anew when it has come round.
    """
    cycle, turn = divmod(number, len(names))
    shuffled = sorted(names)
    random.Random(f"{seed}:order:{cycle}").shuffle(shuffled)
    return shuffled[turn:] + shuffled[:turn]
