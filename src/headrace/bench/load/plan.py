"""What a run does, in figures that can be handed to another process.

A plan says when conversations begin (one of a single turn is a request), how many requests there
are and when the run ends. Everything is drawn before the run, so that equal seeds give equal plans.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from headrace.bench import arrivals
from headrace.errors import ConfigError

NS_PER_S = 1_000_000_000
DEFAULT_GRACE_S = 30.0
# As many as fit in memory many times over; a typo is found before a schedule of it is made.
MAX_REQUESTS = 10_000_000
MAX_CONCURRENCY = 65_536


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The times at which a run sends its requests.

    Kind "closed": each of `times_ns` is the time at which a user starts, who sends a request as
    soon as the previous one has ended. Kind "open": each is the time at which a conversation
    begins, whatever the others do.
    """

    kind: Literal["closed", "open"]
    times_ns: tuple[int, ...]
    requests: int | None = None
    """Measured ones, None where only the duration ends the run. The first `warmup_requests` are not
    measured; unless `warmup_drained` the measured ones follow without a break, and the times of an
    open plan count for both."""
    duration_s: float | None = None
    """Seconds from the first measured request, after which nothing new is sent; requests in flight
    have `grace_s` to end."""
    warmup_requests: int = 0
    warmup_drained: bool = False
    max_in_flight: int | None = None
    """An open plan's requests beyond it wait, and their intended time stays."""
    max_errors: int | None = None
    grace_s: float = DEFAULT_GRACE_S
    speed: float = 1.0
    """Factor that think times are divided by."""
    stop_when_saturated: bool = False
    """The run ends where `saturation` says that the server does not keep up."""

    @property
    def first_measured(self) -> int:
        """Number of the first measured one in the times; a drained warm-up is no part of them."""
        return 0 if self.warmup_drained else self.warmup_requests

    def first_conversation(self, worker: int, workers: int) -> int:
        """Number of the first one that client number `worker` of so many takes.

        Requests are numbered with the warm-up first, conversations are not.
        """
        return (worker - self.first_measured) % workers

    def share(self, worker: int, workers: int) -> LoadPlan:
        """The part of client number `worker` of so many: every workers-th time and request."""

        def part(start: int, stop: int) -> int:
            return len(range(start + (worker - start) % workers, stop, workers))

        start = self.first_measured
        limit = self.max_in_flight
        return msgspec.structs.replace(
            self,
            times_ns=self.times_ns[worker::workers],
            requests=None if self.requests is None else part(start, start + self.requests),
            warmup_requests=part(0, self.warmup_requests),
            max_in_flight=None if limit is None else max(1, part(0, limit)),
            # Errors are added up by who started the clients.
            max_errors=self.max_errors if workers == 1 else None,
        )


def closed_plan(
    concurrency: int,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    ramp_s: float = 0.0,
    warmup_requests: int = 0,
    max_errors: int | None = None,
    grace_s: float = DEFAULT_GRACE_S,
) -> LoadPlan:
    """So many users at once, the first at the start and the last `ramp_s` · (c − 1) / c later."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ConfigError(f"--concurrency {concurrency} is not from 1 to {MAX_CONCURRENCY}")
    _check_end(requests, duration_s)
    step_ns = ramp_s * NS_PER_S / concurrency
    return LoadPlan(
        kind="closed",
        times_ns=tuple(round(user * step_ns) for user in range(concurrency)),
        requests=requests,
        duration_s=duration_s,
        warmup_requests=warmup_requests,
        max_errors=max_errors,
        grace_s=grace_s,
    )


def open_plan(
    rate: float,
    source: random.Random,
    *,
    burstiness: float = 1.0,
    requests: int | None = None,
    duration_s: float | None = None,
    ramp_from: float | None = None,
    ramp_shape: arrivals.RampShape = "linear",
    warmup_requests: int = 0,
    max_in_flight: int | None = None,
    max_errors: int | None = None,
    grace_s: float = DEFAULT_GRACE_S,
) -> LoadPlan:
    """`rate` a second, as `arrivals.gamma` has them: 1 is Poisson, infinity is constant.

    ramp_from: the rate at the start, from which it goes to `rate` in a straight line or by equal
    factors. requests None: as many as the duration holds. Requests that warm up come before, at
    the rate at the start, and are drawn apart: the measured ones have exactly the rate that is
    asked, whatever the warm-up drew.
    """
    _check_end(requests, duration_s)
    if requests is None:
        assert duration_s is not None
        requests = arrivals.count_within(duration_s, _mean_rate(rate, ramp_from, ramp_shape))
        if requests < 1:
            raise ConfigError(
                f"--rate {rate:g} for --duration {duration_s:g} s sends nothing; raise one of them"
            )
    if requests > MAX_REQUESTS:
        raise ConfigError(f"{requests} requests: the most of one run is {MAX_REQUESTS}")
    first_rate = rate if ramp_from is None else ramp_from
    warmup = arrivals.gamma(warmup_requests, first_rate, burstiness, source)
    if ramp_from is not None:
        times = arrivals.ramp(
            requests, ramp_from, rate, ramp_shape, burstiness=burstiness, source=source
        )
    else:
        times = arrivals.gamma(requests, rate, burstiness, source)
    offset_ns = warmup[-1] if warmup else 0
    times = (*warmup, *(offset_ns + at for at in times))
    return LoadPlan(
        kind="open",
        times_ns=times,
        requests=requests,
        duration_s=duration_s,
        warmup_requests=warmup_requests,
        max_in_flight=max_in_flight,
        max_errors=max_errors,
        grace_s=grace_s,
    )


def trace_plan(
    times_ns: Sequence[int],
    *,
    speed: float = 1.0,
    requests: int | None = None,
    duration_s: float | None = None,
    warmup_requests: int = 0,
    max_in_flight: int | None = None,
    max_errors: int | None = None,
    grace_s: float = DEFAULT_GRACE_S,
) -> LoadPlan:
    """As a trace has its conversations, `speed` times as fast; its warm-up ends before it begins.

    Without `requests` the whole trace is sent, or what lies within the duration.
    """
    times = arrivals.from_timestamps(times_ns, speed)
    if duration_s is not None:
        times = tuple(at for at in times if at <= duration_s * NS_PER_S)
    return LoadPlan(
        kind="open",
        times_ns=times if requests is None else times[:requests],
        requests=requests,
        duration_s=duration_s,
        warmup_requests=warmup_requests,
        warmup_drained=True,
        max_in_flight=max_in_flight,
        max_errors=max_errors,
        grace_s=grace_s,
        speed=speed,
    )


def _mean_rate(rate: float, ramp_from: float | None, shape: arrivals.RampShape) -> float:
    """Over the time of a ramp; the rate itself where there is none."""
    if ramp_from is None or ramp_from == rate:
        return rate
    if shape == "linear":
        return (ramp_from + rate) / 2
    return (rate - ramp_from) / math.log(rate / ramp_from)


def _check_end(requests: int | None, duration_s: float | None) -> None:
    if requests is None and duration_s is None:
        raise ConfigError("the run has no end: give --requests or --duration")
    if requests is not None and not 1 <= requests <= MAX_REQUESTS:
        raise ConfigError(f"--requests {requests} is not from 1 to {MAX_REQUESTS}")
