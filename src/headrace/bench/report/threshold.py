"""What a comparison fails on, as people write it for CI: `ttft_p95>1.10`.

A threshold is on the ratio to the first run. It is crossed only where the ratio's whole interval
lies beyond it: chance alone seldom breaks a build, and a small run breaks none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from headrace.bench.definitions import Clock
from headrace.bench.ratio import Ratio
from headrace.bench.statistics import CONFIDENCE
from headrace.errors import ConfigError, shown

LATENCIES = ("ttft", "ttfot", "tpot", "itl", "stall", "e2e")

RATES = ("tps", "rps", "good")
"""Of which more is better; their ratios have an interval."""

_ALIASES = MappingProxyType({"e2el": "e2e", "itl_chunk": "itl"})

_TEXT = re.compile(
    r"\s*(?P<name>[a-z0-9_]+?)(?:_(?P<statistic>mean|median|p[0-9.]+))?"
    r"(?:@(?P<clock>[a-z]+))?\s*(?P<operator>[<>])\s*(?P<factor>[0-9.]+)\s*"
)

_EXAMPLES = "write ttft_p95>1.10 for times, or tps<0.95 for rates"

Standing = Literal["crossed", "kept", "unsure", "unknown"]


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on one statistic of a report."""

    text: str
    metric: str
    statistic: str
    """"mean" or a percentile such as "p95"; "" for rates."""
    clock: Clock
    """Where the latency begins."""
    above: bool
    """Crossed from below."""
    factor: float
    """Multiple of the first run's figure."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one threshold for one run.

    "unsure": there are too few samples for an interval. "unknown": one of the runs does not have
    the figure, which fails a comparison, too.
    """

    threshold: str
    run: str
    standing: Standing
    told: str

    @property
    def fails(self) -> bool:
        """Whether it is a reason to stop."""
        return self.standing in ("crossed", "unknown")


def parse_threshold(text: str) -> Threshold:
    """Raises ConfigError that names what is wrong and what to write."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ConfigError(f"--fail-if {shown(text)} is not METRIC>FACTOR; {_EXAMPLES}")
    metric = _ALIASES.get(match["name"], match["name"])
    above = match["operator"] == ">"
    if metric not in (*LATENCIES, *RATES):
        known = ", ".join([*(f"{one}_p95" for one in LATENCIES), *RATES])
        raise ConfigError(
            f"--fail-if {shown(text)}: {shown(metric)} is not known; use one of {known}, or "
            "another percentile or the mean of the latencies"
        )
    if above != (metric in LATENCIES):
        better, right = ("more", "<") if metric in RATES else ("less", ">")
        raise ConfigError(
            f"--fail-if {shown(text)}: {better} {metric} is better; write {right} to fail on worse"
        )
    return Threshold(
        text=text.strip(),
        metric=metric,
        statistic=_statistic(text, metric, match["statistic"]),
        clock=_clock(text, metric, match["clock"]),
        above=above,
        factor=_factor(text, match["factor"]),
    )


def _statistic(text: str, metric: str, given: str | None) -> str:
    if metric in RATES:
        if given is not None:
            raise ConfigError(f"--fail-if {shown(text)}: {metric} is one number; omit _{given}")
        return ""
    if given is None:
        raise ConfigError(
            f"--fail-if {shown(text)}: {metric} has many values; write {metric}_p95, "
            f"{metric}_p50 or {metric}_mean"
        )
    if given == "mean":
        if metric == "itl":
            raise ConfigError(
                f"--fail-if {shown(text)}: the mean of pooled gaps has no interval; write itl_p50, "
                "or tpot_mean"
            )
        return given
    given = "p50" if given == "median" else given
    if not 0 <= quantile_of(given) <= 1:
        raise ConfigError(f"--fail-if {shown(text)}: {given} is not from p0 to p100")
    return given


def quantile_of(statistic: str) -> float:
    """0 to 1, of "p95"; NaN of what is no percentile."""
    try:
        return float(statistic[1:]) / 100
    except ValueError:
        return math.nan


def _clock(text: str, metric: str, given: str | None) -> Clock:
    if given is None:
        return "intended"
    if metric in RATES or given not in ("intended", "sent"):
        raise ConfigError(
            f"--fail-if {shown(text)}: @{given} is not known; write @intended or @sent after "
            "a latency"
        )
    return "sent" if given == "sent" else "intended"


def _factor(text: str, given: str) -> float:
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ConfigError(
            f"--fail-if {shown(text)}: {shown(given)} is not a ratio above 0; {_EXAMPLES}"
        )
    return factor


def judged(
    threshold: Threshold, names: Sequence[str], ratios: Sequence[Ratio | None]
) -> list[Outcome]:
    """One outcome for each run but the first; names and ratios are of all runs in their order."""
    return [
        _outcome(threshold, name, names[0], ratio)
        for name, ratio in list(zip(names, ratios, strict=True))[1:]
    ]


def _outcome(of: Threshold, name: str, base: str, ratio: Ratio | None) -> Outcome:
    standing: Standing
    if ratio is None:
        standing, told = "unknown", f"{name} or {base} does not have this figure"
    elif ratio.low is None or ratio.high is None:
        standing = "unsure"
        told = f"{name} has {ratio.ratio:.3g} times that of {base}; too few samples to be sure"
    else:
        beyond = ratio.low > of.factor if of.above else ratio.high < of.factor
        standing = "crossed" if beyond else "kept"
        told = (
            f"{name} has {ratio.ratio:.3g} times that of {base}, "
            f"{ratio.low:.3g} to {ratio.high:.3g} with {CONFIDENCE:.0%} confidence"
        )
    return Outcome(threshold=of.text, run=name, standing=standing, told=told)
