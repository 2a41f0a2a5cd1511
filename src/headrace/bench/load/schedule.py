"""Which request is sent when: closed loops and open ones, both of conversations.

A schedule is asked for what it begins by itself, and at the end of each request for what follows
from it. Times are nanoseconds from the start of the run. It knows no clock and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from headrace.bench.load.conversations import Conversation, Supply
from headrace.bench.load.plan import LoadPlan
from headrace.bench.workload import WorkItem

# Before a user tries again after a failure: without it a closed loop against a server that is gone,
# or that refuses at once, would count millions of failures and be a flood for whoever serves.
FAILED_PAUSE_NS = 100_000_000


class Send(NamedTuple):
    """A request to send at `at_ns`: turn number `turn` of a conversation."""

    at_ns: int
    turns: Conversation
    turn: int
    conversation: int
    measured: bool

    @property
    def item(self) -> WorkItem:
        """What to send, before answers are filled in."""
        return self.turns[self.turn]

    @property
    def has_next(self) -> bool:
        """Whether another turn follows, which needs this one's answer."""
        return self.turn + 1 < len(self.turns)


class Schedule(Protocol):
    """One phase of a run."""

    def begin(self) -> Iterator[Send]:
        """What is sent whatever comes back, in order of time; read as far as the run gets."""

    def after(self, ended: Send, end_ns: int, *, failed: bool) -> Send | None:
        """What follows the end of a request."""


class _Intake:
    """A limit of conversations to the number of requests: those that warm up, then the others."""

    def __init__(
        self, supply: Supply, warmup: Supply, warmup_requests: int, requests: int | None
    ) -> None:
        self._supply = supply
        self._warmup = warmup
        self._warmup_left = warmup_requests
        self._left = requests

    def first(self, at_ns: int) -> Send | None:
        """The first turn of the next conversation; None where no request is left."""
        if self._warmup_left > 0:
            taken = self._warmup.take()
            if taken is not None:
                self._warmup_left -= 1
                return Send(at_ns, taken.turns[:1], 0, taken.number, measured=False)
        if self._left is not None and self._left <= 0:
            return None
        taken = self._supply.take()
        if taken is None:
            return None
        self._count()
        return Send(at_ns, taken.turns, 0, taken.number, measured=True)

    def next_turn(self, ended: Send, at_ns: int) -> Send | None:
        if not ended.has_next or (self._left is not None and self._left <= 0):
            return None
        self._count()
        return ended._replace(at_ns=at_ns, turn=ended.turn + 1)

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1


class ClosedLoop:
    """Users who each have one request in flight; think times lie between turns."""

    def __init__(self, intake: _Intake, starts_ns: tuple[int, ...], speed: float) -> None:
        self._intake = intake
        self._starts_ns = starts_ns
        self._speed = speed

    def begin(self) -> Iterator[Send]:
        """The first request of each user."""
        for at_ns in self._starts_ns:
            send = self._intake.first(at_ns)
            if send is None:
                return
            yield send

    def after(self, ended: Send, end_ns: int, *, failed: bool) -> Send | None:
        """The user's next: another turn, or another conversation where a turn failed."""
        if ended.has_next and not failed:
            return self._intake.next_turn(ended, _after_thinking(ended, end_ns, self._speed))
        return self._intake.first(end_ns + FAILED_PAUSE_NS if failed else end_ns)


class OpenLoop:
    """Conversations that begin at set times; their later turns follow their earlier ones."""

    def __init__(self, intake: _Intake, times_ns: tuple[int, ...], speed: float) -> None:
        self._intake = intake
        self._times_ns = times_ns
        self._speed = speed

    def begin(self) -> Iterator[Send]:
        """The first turn of each."""
        for at_ns in self._times_ns:
            send = self._intake.first(at_ns)
            if send is None:
                return
            yield send

    def after(self, ended: Send, end_ns: int, *, failed: bool) -> Send | None:
        """The next turn; none of a conversation in which one failed."""
        if failed or not ended.has_next:
            return None
        return self._intake.next_turn(ended, _after_thinking(ended, end_ns, self._speed))


def _after_thinking(ended: Send, end_ns: int, speed: float) -> int:
    return end_ns + round(ended.turns[ended.turn + 1].think_ns / speed)


def make_schedules(plan: LoadPlan, supply: Supply, warmup: Supply) -> list[Schedule]:
    """The phases of a plan; each begins when the one before has ended.

    A warm-up that is drained is a closed loop of its own, of a user for each of up to
    DRAINED_USERS requests.
    """
    if plan.warmup_requests and plan.warmup_drained:
        users = (0,) * min(plan.warmup_requests, DRAINED_USERS)
        first = ClosedLoop(_Intake(supply, warmup, plan.warmup_requests, 0), users, plan.speed)
        return [first, _schedule(plan, _Intake(supply, warmup, 0, plan.requests))]
    return [_schedule(plan, _Intake(supply, warmup, plan.warmup_requests, plan.requests))]


# Enough to have several requests in one batch, too few to be an overload.
DRAINED_USERS = 4


def _schedule(plan: LoadPlan, intake: _Intake) -> Schedule:
    if plan.kind == "closed":
        return ClosedLoop(intake, plan.times_ns, plan.speed)
    return OpenLoop(intake, plan.times_ns, plan.speed)
