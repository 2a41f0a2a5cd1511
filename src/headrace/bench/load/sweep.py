"""Several loads in a row: from one request at a time to as many as are taken, or as chosen.

The rate of a synchronous run is what a lone user gets, that of a run with many users is what the
server makes of a full batch; the open-loop rates between them show at which load latency rises. Who
knows the loads names them: rates, or users. It knows neither clocks nor requests: whoever calls it
runs the loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headrace.errors import ConfigError

R = TypeVar("R")

DEFAULT_POINTS = 8
FEWEST_POINTS, MAX_POINTS = 3, 100
FEWEST_CHOSEN = 2


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Loads as they were chosen, `rates` in requests per second or `users` of closed loops, which
    come in ascending order; without either `points` loads in all, whose rates are found.

    Raises ConfigError for both lists, for one of fewer than FEWEST_CHOSEN or more than MAX_POINTS
    loads, for a load that is there twice, and for one that is not above 0 or not finite.
    """

    points: int = DEFAULT_POINTS
    rates: tuple[float, ...] = ()
    users: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check all of them."""
        if not FEWEST_POINTS <= self.points <= MAX_POINTS:
            raise ConfigError(
                f"--sweep {self.points} is not from {FEWEST_POINTS} to {MAX_POINTS} points"
            )
        if self.rates and self.users:
            raise ConfigError(
                "--rate and --concurrency are both lists, and a sweep varies one of them; "
                "give one value for the other, or omit it"
            )
        _check_chosen("--rate", self.rates, "1,2,5")
        _check_chosen("--concurrency", self.users, "1,4,16")


def _check_chosen(flag: str, loads: Sequence[float], like: str) -> None:
    if not loads:
        return
    if not FEWEST_CHOSEN <= len(loads) <= MAX_POINTS:
        raise ConfigError(
            f"{flag} of a sweep: {len(loads)} loads are not from {FEWEST_CHOSEN} to {MAX_POINTS}; "
            f"write a list such as {like}"
        )
    for load in loads:
        if not 0 < load < math.inf:
            raise ConfigError(
                f"{flag} of a sweep: {load:g} is not a finite number above 0; omit it"
            )
        if loads.count(load) > 1:
            raise ConfigError(f"{flag} of a sweep: {load:g} is listed twice; omit one")


class SweepPoint(NamedTuple, Generic[R]):
    """One load and its result. rate: that was offered; None of a closed loop. users: of one."""

    name: str
    rate: float | None
    result: R
    users: int | None = None


def sweep(
    points: int,
    *,
    synchronous: Callable[[], R],
    throughput: Callable[[], R],
    at_rate: Callable[[float], R],
    completed_per_s: Callable[[R], float | None],
    go_on: Callable[[], bool] = lambda: True,
    saturated: Callable[[R], bool] = lambda _: False,
    users: int | None = None,
) -> list[SweepPoint[R]]:
    """`points` loads in all, in ascending order of load, the two ends included.

    Rates are evenly spaced; where either end completed nothing there are none between. go_on: asked
    before each load, False after Ctrl-C. saturated: asked of each rate's result; True leaves the
    rates above it out. users: of `throughput`.
    """
    alone = SweepPoint("synchronous", None, synchronous(), 1)
    if not go_on():
        return [alone]
    full = SweepPoint("throughput", None, throughput(), users)
    low, high = completed_per_s(alone.result), completed_per_s(full.result)
    between: list[SweepPoint[R]] = []
    if low is not None and high is not None and 0 < low < high:
        for rate in rates(low, high, points - 2):
            if not go_on():
                break
            between.append(SweepPoint(f"{rate:.3g}/s", rate, at_rate(rate)))
            if saturated(between[-1].result):
                break
    return [alone, *between, full]


def sweep_chosen(
    loads: SweepOptions,
    *,
    at_rate: Callable[[float, str], R],
    at_once: Callable[[int, str], R],
    go_on: Callable[[], bool] = lambda: True,
    saturated: Callable[[R], bool] = lambda _: False,
) -> list[SweepPoint[R]]:
    """The chosen loads in ascending order, each with its name; the others as `sweep` has them."""
    done: list[SweepPoint[R]] = []
    for users in sorted(loads.users):
        if done and not go_on():
            return done
        name = "1 at a time" if users == 1 else f"{users} at once"
        done.append(SweepPoint(name, None, at_once(users, name), users))
    for rate in sorted(loads.rates):
        if done and not go_on():
            return done
        name = f"{rate:.12g}/s"
        done.append(SweepPoint(name, rate, at_rate(rate, name)))
        if saturated(done[-1].result):
            break
    return done


def rates(low: float, high: float, count: int) -> list[float]:
    """`count` of them, evenly, without the ends."""
    return [low + (high - low) * step / (count + 1) for step in range(1, count + 1)]
