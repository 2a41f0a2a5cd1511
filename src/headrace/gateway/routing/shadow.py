"""The shadow of a model: a target that gets copies of its requests, and counts of the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.settings.traffic import ShadowSettings
from headrace.gateway.targets.target import Target


class ShadowCounts(NamedTuple):
    """Counts of a model's copies, since the configuration was read."""

    in_flight: int
    """Under way now."""
    answered: int
    failed: int
    """Without a whole answer."""
    dropped: int
    """Not sent, because too many were under way."""
    left_out: int
    """Not sent, because the target may not or cannot have them."""


class Shadow:
    """The shadow of one model. `count` is called with the name of each count in `counts` as it
    rises."""

    def __init__(
        self, settings: ShadowSettings, target: Target, count: Callable[[str], None] | None = None
    ) -> None:
        self._count = count
        self.target = target
        self.share = settings.share
        self.timeout_s = settings.timeout_s
        self._most_in_flight = settings.max_in_flight
        self._in_flight = 0
        self._counted = dict.fromkeys(ShadowCounts._fields[1:], 0)

    @property
    def counts(self) -> ShadowCounts:
        """The current counts."""
        return ShadowCounts(self._in_flight, **self._counted)

    def begin(self) -> bool:
        """Whether one more copy may be sent; if so, `ended` has to follow."""
        if self._in_flight >= self._most_in_flight:
            self._counts("dropped")
            return False
        self._in_flight += 1
        return True

    def ended(self, *, answered: bool) -> None:
        """Count a copy that is over."""
        self._in_flight -= 1
        self._counts("answered" if answered else "failed")

    def leave_out(self) -> None:
        """Count a copy that is not sent."""
        self._counts("left_out")

    def _counts(self, what: str) -> None:
        self._counted[what] += 1
        if self._count is not None:
            self._count(what)
