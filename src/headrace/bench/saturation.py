"""Whether a server kept up with the requests that were due, from when they came and ended.

Looked at are the last third of the time in which requests came, and the third before it. The server
is saturated where in the last third it completed fewer than KEEPS_UP of those that came, by more
than chance explains, and no more than in the third before: a backlog grows at a throughput that has
stopped growing. Nothing is said before nearly all of those that came first have ended: until then
little ends because little has had the time to, and a server with room for all would look the same.
Requests that failed are not completed: a server that sheds its load does not keep up. A closed loop
shows nothing of this; its users wait.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

KEEPS_UP = 0.8

# Arrivals of independent users scatter by the root of their number; three times it is not chance.
_DEVIATIONS = 3.0
# Of the third before: less is a throughput that does not grow.
_GROWS_BEYOND = 1.1
# With fewer completions nobody can say whether throughput grows.
_FEWEST_ENDED = 10
# Of so many that came first (a tenth of all, within these bounds) nearly all are to have ended,
# well or not: then the run is longer than nearly any request takes where there is room for all.
_FIRST = 0.1
_FEWEST_FIRST, _MOST_FIRST = 10, 30
_FIRST_ENDED = 0.9


class Saturation(msgspec.Struct, frozen=True, kw_only=True):
    """Rates per second of the last third, from `from_s` to `to_s` of the run;"""

    saturated: bool | None
    """None if too few requests arrived, or had time to end, to decide."""
    from_s: float
    to_s: float
    came_per_s: float
    completed_per_s: float
    before_per_s: float
    """What was completed in the third before it."""
    backlog: int
    """Due and not completed at the end of it."""

    @property
    def told(self) -> str:
        """In a sentence."""
        when = f"from {self.from_s:.1f} to {self.to_s:.1f} s"
        seen = (
            f"{when} {self.came_per_s:.4g} requests/s arrived and {self.completed_per_s:.4g} "
            "were completed"
        )
        if self.saturated:
            return (
                f"The server did not keep up: {seen} ({self.before_per_s:.4g} in the third "
                f"before); {self.backlog} were not done."
            )
        if self.saturated is False:
            part = self.completed_per_s / self.came_per_s
            return f"The server kept up: {seen} ({part:.0%}; {KEEPS_UP:.0%} is keeping up)."
        few = round(self.came_per_s * (self.to_s - self.from_s)) < _FEWEST_ENDED
        why = (
            f"{when} fewer than {_FEWEST_ENDED} requests arrived"
            if few
            else f"{seen}, which may be chance, or requests that had no time to end"
        )
        return f"Whether the server kept up is not known: {why}; use a longer run."


def saturation(
    came_ns: Sequence[int], completed_ns: Sequence[int], over_ns: Sequence[int], until_ns: int
) -> Saturation | None:
    """All in ascending order; None where nothing came, or all at once.

    over_ns: when those came that have ended by until_ns, well or not. until_ns: the end of the time
    that is looked at, the last arrival of a run or now.
    """
    if not came_ns or until_ns <= came_ns[0]:
        return None
    start_ns = came_ns[0]
    third_ns = (until_ns - start_ns) / 3
    seconds = third_ns / 1e9

    def within(times_ns: Sequence[int], third: int) -> int:
        """Counted from 0; the first begins with the first arrival."""
        low, high = start_ns + third * third_ns, start_ns + (third + 1) * third_ns
        return bisect_right(times_ns, high) - bisect_right(times_ns, low)

    came, done, before = within(came_ns, 2), within(completed_ns, 2), within(completed_ns, 1)
    less = done < KEEPS_UP * came
    behind = less and came - done > _DEVIATIONS * math.sqrt(came)
    flat = done <= _GROWS_BEYOND * before and done + before >= _FEWEST_ENDED
    saturated: bool | None = behind and flat and _old_enough(came_ns, over_ns)
    if not saturated and (less or came < _FEWEST_ENDED):
        saturated = None
    return Saturation(
        saturated=saturated,
        from_s=(until_ns - third_ns) / 1e9,
        to_s=until_ns / 1e9,
        came_per_s=came / seconds,
        completed_per_s=done / seconds,
        before_per_s=before / seconds,
        backlog=bisect_right(came_ns, until_ns) - bisect_right(completed_ns, until_ns),
    )


def _old_enough(came_ns: Sequence[int], over_ns: Sequence[int]) -> bool:
    first = min(max(round(_FIRST * len(came_ns)), _FEWEST_FIRST), _MOST_FIRST)
    if len(came_ns) < first:
        return False
    return bisect_right(over_ns, came_ns[first - 1]) >= _FIRST_ENDED * first
