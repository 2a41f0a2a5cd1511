"""How requests arrive, as it was asked for, and the plan that this comes to."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from headrace.bench.arrivals import RampShape
from headrace.bench.load.plan import (
    DEFAULT_GRACE_S,
    LoadPlan,
    closed_plan,
    open_plan,
    trace_plan,
)
from headrace.errors import ConfigError

Arrivals = Literal["poisson", "constant", "gamma"]

DEFAULT_REQUESTS = 100
DEFAULT_CONCURRENCY = 8


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a run: an open loop if there is a `rate`, with at most `concurrency` requests in
    flight; else a closed loop of `concurrency` users."""

    concurrency: int | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    burstiness: float | None = None
    """Shape of gamma arrivals."""
    ramp_s: float = 0.0
    """Seconds over which users begin."""
    ramp_from: float | None = None
    """The rate at which an open loop begins, to end at `rate`."""
    ramp_shape: RampShape | None = None
    requests: int | None = None
    duration_s: float | None = None
    """With `requests`: whichever comes first; with neither DEFAULT_REQUESTS, or a whole trace."""
    warmup_requests: int = 0
    max_errors: int | None = None
    grace_s: float = DEFAULT_GRACE_S
    speed: float = 1.0
    """Replay speed of a trace."""
    processes: int = 1
    stop_when_saturated: bool = False
    """End an open loop when the server does not keep up."""

    @property
    def prompts_needed(self) -> int | None:
        """Where it is known before the load is drawn."""
        if self.requests is None and self.duration_s is None:
            return None
        if self.requests is None and not self.is_closed and self.rate and self.duration_s:
            return math.ceil(self.rate * self.duration_s)
        return self.requests

    @property
    def trace_s(self) -> float | None:
        """How much of a trace is read, in its own time; None: all, for its lengths at least."""
        if self.duration_s is None or self.rate is not None:
            return None
        return self.duration_s * self.speed

    @property
    def is_closed(self) -> bool:
        """Whether the next request waits for one before it: no rate, or all at once."""
        return self.rate is None or math.isinf(self.rate)

    @property
    def users(self) -> int:
        """Of a closed loop; an infinite rate without a limit sends everything at once."""
        if self.rate is not None and self.concurrency is None:
            return self.requests or DEFAULT_REQUESTS
        return self.concurrency or DEFAULT_CONCURRENCY


def at_once(options: LoadOptions, users: int) -> LoadOptions:
    """The same as a closed loop of so many users; one user needs no ramp, and no more processes."""
    return msgspec.structs.replace(
        options,
        concurrency=users,
        rate=None,
        burstiness=None,
        ramp_from=None,
        ramp_shape=None,
        processes=min(options.processes, users),
        ramp_s=0.0 if users == 1 else options.ramp_s,
    )


def at_rate(options: LoadOptions, rate: float) -> LoadOptions:
    """The same as an open loop at one rate, as many in flight as may be."""
    return msgspec.structs.replace(
        options, rate=rate, concurrency=None, ramp_s=0.0, ramp_from=None, ramp_shape=None
    )


def with_default_end(options: LoadOptions, *, trace: bool) -> LoadOptions:
    """The same, with an end where none was given."""
    if trace or options.requests is not None or options.duration_s is not None:
        return options
    return msgspec.structs.replace(options, requests=DEFAULT_REQUESTS)


def with_trace(options: LoadOptions, times_ns: Sequence[int], conversations: int) -> LoadOptions:
    """The same for a trace that has been read: with a rate its lengths are taken, all of them where
    nothing else ends the run. Raises ConfigError for one without times and no rate."""
    if options.rate is None and not times_ns:
        raise ConfigError(
            "--trace: the file has lengths but no times; add --rate, such as --rate 5"
        )
    if options.rate is None or options.requests is not None or options.duration_s is not None:
        return options
    return msgspec.structs.replace(options, requests=conversations)


def make_plan(options: LoadOptions, source: random.Random, times_ns: Sequence[int]) -> LoadPlan:
    """times_ns: of a trace, which then decides. Raises ConfigError for what goes not together."""
    plan = _plan(options, source, times_ns)
    if options.stop_when_saturated and plan.kind == "open":
        return msgspec.structs.replace(plan, stop_when_saturated=True)
    return plan


def _plan(options: LoadOptions, source: random.Random, times_ns: Sequence[int]) -> LoadPlan:
    ends: Any = {
        "requests": options.requests,
        "duration_s": options.duration_s,
        "warmup_requests": options.warmup_requests,
        "max_errors": options.max_errors,
        "grace_s": options.grace_s,
    }
    rate = options.rate
    if times_ns and rate is None:
        return trace_plan(times_ns, speed=options.speed, max_in_flight=options.concurrency, **ends)
    if options.burstiness is not None and (rate is None or options.arrivals != "gamma"):
        raise ConfigError(
            f"--burstiness {options.burstiness:g} needs --rate and --arrivals gamma; add them"
        )
    if options.ramp_from is not None and rate is None:
        raise ConfigError(f"--ramp-from {options.ramp_from:g} needs --rate; add it")
    if options.ramp_shape is not None and options.ramp_from is None:
        raise ConfigError(
            f"--ramp-shape {options.ramp_shape} needs a rate that changes; add --ramp-from"
        )
    if rate is None or options.is_closed:
        return closed_plan(options.users, ramp_s=options.ramp_s, **ends)
    if options.ramp_s:
        raise ConfigError(
            f"--ramp {options.ramp_s:g} needs a closed loop; with --rate use --ramp-from"
        )
    burstiness = {"poisson": 1.0, "constant": math.inf, "gamma": options.burstiness or 1.0}
    return open_plan(
        rate,
        source,
        burstiness=burstiness[options.arrivals],
        ramp_from=options.ramp_from,
        ramp_shape=options.ramp_shape or "linear",
        max_in_flight=options.concurrency,
        **ends,
    )


def load_text(options: LoadOptions, *, trace: bool) -> str:
    """In words, for a report."""
    if trace and options.rate is None:
        text = f"trace at {options.speed:g} times its speed"
    elif options.is_closed:
        text = f"closed loop of {options.users}"
        if options.ramp_s:
            text += f" over {options.ramp_s:g} s"
    else:
        start = f"{options.ramp_from:g} to " if options.ramp_from is not None else ""
        text = f"{options.arrivals} arrivals, {start}{options.rate:g}/s"
        if options.ramp_shape == "exponential":
            text += " exponentially"
        if options.arrivals == "gamma":
            text += f", burstiness {options.burstiness or 1:g}"
    if options.concurrency is not None and (trace or not options.is_closed):
        text += f", at most {options.concurrency} in flight"
    if options.requests is not None:
        text += f", {options.requests} requests"
    if options.duration_s is not None:
        text += f", {options.duration_s:g} s"
    if options.warmup_requests:
        text += f", {options.warmup_requests} to warm up"
    if options.stop_when_saturated and (trace or not options.is_closed):
        text += ", until saturated"
    return text
