"""When requests of an open loop are sent: a schedule, made before the run starts.

A schedule is one time for each request, in whole nanoseconds from the start, never falling. It is
made from two parts. How even: gaps all equal, or drawn from a gamma distribution whose shape is
the burstiness (1: exponential gaps, which is a Poisson process; below 1: bursts; infinite: all
equal). How many: the rate over time. Drawn gaps are rescaled so that the last of n requests comes
at exactly n / rate: sums of drawn gaps miss it by a few percent, and every figure per second would
carry that. The first request therefore comes one gap after the start, not at it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from headrace.errors import ConfigError, shown

NS_PER_S = 1_000_000_000

RampShape = Literal["linear", "exponential"]


def constant(count: int, rate: float) -> tuple[int, ...]:
    """`count` requests, evenly, `rate` a second; all at once where the rate is infinite."""
    _check(count, rate=rate)
    if math.isinf(rate):
        return (0,) * count
    per_second = Fraction(rate)
    return tuple(round(at * NS_PER_S / per_second) for at in range(1, count + 1))


def poisson(count: int, rate: float, source: random.Random) -> tuple[int, ...]:
    """As independent users send them."""
    return gamma(count, rate, 1.0, source)


def gamma(count: int, rate: float, burstiness: float, source: random.Random) -> tuple[int, ...]:
    """Gaps drawn with this burstiness: their deviation is 1 / √burstiness of their mean."""
    _check(count, rate=rate, burstiness=burstiness)
    if math.isinf(rate) or math.isinf(burstiness):
        return constant(count, rate)
    total = round(count * NS_PER_S / Fraction(rate))
    return _scheduled(_operational(count, burstiness, source), total, lambda at: at / rate)


def ramp(
    count: int,
    first_rate: float,
    last_rate: float,
    shape: RampShape = "linear",
    *,
    burstiness: float = math.inf,
    source: random.Random | None = None,
) -> tuple[int, ...]:
    """`count` requests while the rate goes from the first to the last, in a straight line or by
    equal factors in equal times.

    The rate is a function of time. (vllm's ramp makes it one of the request's number, so that a
    linear one spends less time at high rates.) Takes 2·count / (first + last) seconds if linear and
    count · ln(last / first) / (last − first) if exponential. A source is needed for a burstiness
    that is not infinite.
    """
    _check(count, first_rate=first_rate, last_rate=last_rate, burstiness=burstiness)
    for name, rate in (("first_rate", first_rate), ("last_rate", last_rate)):
        if math.isinf(rate):
            raise ConfigError(
                f"{name} {rate} of a ramp must be finite; use a rate that can be reached"
            )
    if not count:
        return ()
    if math.isinf(burstiness):
        steps = [float(at) for at in range(1, count + 1)]
    elif source is None:
        raise ValueError(f"burstiness {burstiness} of a ramp needs random numbers: pass a source")
    else:
        steps = _operational(count, burstiness, source)
    if first_rate == last_rate:
        seconds, at_s = count / first_rate, lambda at: at / first_rate
    elif shape == "linear":
        seconds = 2 * count / (first_rate + last_rate)
        at_s = _linear(first_rate, (last_rate - first_rate) / seconds)
    else:
        rise = last_rate - first_rate
        factor_log = math.log1p(rise / first_rate)
        seconds = count * factor_log / rise
        at_s = _exponential(first_rate, factor_log / seconds)
    return _scheduled(steps, round(seconds * NS_PER_S), at_s)


def from_timestamps(timestamps_ns: Sequence[int], speed: float = 1.0) -> tuple[int, ...]:
    """As a trace has them, the first at 0; `speed` 10 replays ten seconds in one.

    Raises ConfigError where a time is before the one above it.
    """
    _check(len(timestamps_ns), speed=speed)
    for row, (before, after) in enumerate(pairwise(timestamps_ns), start=2):
        if after < before:
            raise ConfigError(
                f"timestamp {after} of trace row {row} is before {before} of the row above; "
                "sort the rows by time"
            )
    if math.isinf(speed):
        return (0,) * len(timestamps_ns)
    start = timestamps_ns[0] if timestamps_ns else 0
    factor = Fraction(speed)
    return tuple(round((at - start) / factor) for at in timestamps_ns)


def count_within(duration_s: float, rate: float) -> int:
    """Requests that a constant or drawn schedule of this rate sends within the duration."""
    _check(0, rate=rate, duration_s=duration_s)
    if math.isinf(rate) or math.isinf(duration_s):
        raise ConfigError(
            f"a rate of {rate} for {duration_s} s has no end; give the number of requests to send"
        )
    return math.floor(Fraction(duration_s) * Fraction(rate))


def _operational(count: int, burstiness: float, source: random.Random) -> list[float]:
    """Times of arrival at a rate of one, rescaled so that the last is at exactly `count`."""
    at, drawn = 0.0, []
    for _ in range(count):
        at += source.gammavariate(burstiness, 1 / burstiness)
        drawn.append(at)
    # Very bursty draws can all underflow to 0; then they are one burst, at the end.
    return [one * (count / at) for one in drawn] if at else [float(count)] * count


def _scheduled(
    steps: Sequence[float], total_ns: int, at_s: Callable[[float], float]
) -> tuple[int, ...]:
    """From numbers of expected requests to times; rounding moves none past the last."""
    times = [min(round(at_s(step) * NS_PER_S), total_ns) for step in steps]
    if times:
        times[-1] = total_ns
    return tuple(times)


def _linear(first_rate: float, slope: float) -> Callable[[float], float]:
    """The time at which so many requests are expected: first·t + slope·t²/2, solved for t.

    In the form that loses no digits when the slope is small.
    """
    return lambda sent: 2 * sent / (first_rate + math.sqrt(_least(first_rate, slope, sent)))


def _least(first_rate: float, slope: float, sent: float) -> float:
    """Square of the rate after so many requests; rounding must not take it below 0."""
    return max(0.0, first_rate * first_rate + 2 * slope * sent)


def _exponential(first_rate: float, growth: float) -> Callable[[float], float]:
    """first · (exp(growth·t) − 1) / growth, solved for t."""
    return lambda sent: math.log1p(growth * sent / first_rate) / growth


def _check(count: int, **positive: float) -> None:
    if count < 0:
        raise ConfigError(f"count {count} of requests must be 0 or more")
    for name, value in positive.items():
        if not value > 0:
            raise ConfigError(f"{name} {shown(value)} must be above 0; use a positive number")
