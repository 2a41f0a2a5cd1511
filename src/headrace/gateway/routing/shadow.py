"""The shadow of a model: a target that is sent copies of its requests, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateway.settings.traffic import ShadowSettings
from headrace.gateway.targets.target import Target


class ShadowCounts(NamedTuple):
    """in_flight: now; all others since the file was read. failed: without a whole answer. dropped:
    not sent, as so many were under way. left_out: not sent, as the target may not or cannot have
    them."""

    in_flight: int
    answered: int
    failed: int
    dropped: int
    left_out: int


class Shadow:
    """State of one model. count: hears of each copy that is over or not sent, by what it is called
    in `counts`."""

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
        """How it stands."""
        return ShadowCounts(self._in_flight, **self._counted)

    def begin(self) -> bool:
        """Whether one more may be sent, which `ended` has to follow."""
        if self._in_flight >= self._most_in_flight:
            self._counts("dropped")
            return False
        self._in_flight += 1
        return True

    def ended(self, *, answered: bool) -> None:
        """One is over."""
        self._in_flight -= 1
        self._counts("answered" if answered else "failed")

    def leave_out(self) -> None:
        """One is not sent."""
        self._counts("left_out")

    def _counts(self, what: str) -> None:
        self._counted[what] += 1
        if self._count is not None:
            self._count(what)
