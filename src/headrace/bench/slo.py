"""Service-level objectives as people write them, and what they mean.

Two kinds of condition, in any mixture, set apart by spaces, commas or semicolons:
of each request, `ttft:500 tpot:50 e2el:3000`, as vLLM and AIPerf write it; and of the whole run,
`ttft:p95<300ms;itl:p95<50ms;tpot:mean<50ms`. A number without a unit is in milliseconds, or in
tokens per second for rates. `:500` and `<=` allow the limit itself, `<` does not. Metrics are those
of `definitions`, under our names or those of the tools. Knows no requests; `goodput` judges them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from headrace.bench.definitions.measure import Canonical
from headrace.errors import ConfigError, shown

# What each tool calls a metric. AIPerf's inter_token_latency is one number a request, others' TPOT;
# bare `itl` is what vLLM, SGLang and llm-optimizer mean by it, all gaps between chunks.
METRIC_NAMES: MappingProxyType[str, Canonical] = MappingProxyType(
    {
        "ttfb": "ttfb",
        "ttft": "ttft",
        "time_to_first_token": "ttft",
        "ttfot": "ttfot",
        "time_to_first_output_token": "ttfot",
        "tpot": "tpot",
        "time_per_output_token": "tpot",
        "inter_token_latency": "tpot",
        "tpot_incl": "tpot_incl",
        "ntpot": "tpot_incl",
        "itl": "itl_chunk",
        "itl_chunk": "itl_chunk",
        "inter_chunk_latency": "itl_chunk",
        "itl_token": "itl_token",
        "stall": "stall",
        "e2e": "e2e",
        "e2el": "e2e",
        "e2e_latency": "e2e",
        "request_latency": "e2e",
        "tps_user": "tps_user",
        "output_token_throughput_per_user": "tps_user",
    }
)

POOLED = frozenset({"itl_chunk", "itl_token"})
"""Metrics of gaps, of which a request has many; an SLO can only limit those of all requests."""
RATES = frozenset({"tps_user"})

_MS = MappingProxyType({"": 1.0, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3})

_CONDITION = re.compile(
    r"(?P<name>[A-Za-z_0-9]+):"
    r"(?:(?P<statistic>[A-Za-z][A-Za-z0-9.]*)?(?P<operator><=|>=|<|>))?"
    r"(?P<limit>[0-9.]+(?:[eE][+-]?[0-9]+)?)(?P<unit>[A-Za-zµ/]*)"
)

_EXAMPLES = "write ttft:500 for each request, or ttft:p95<300ms for all of them together"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One limit. `limit` is in milliseconds, or in tokens per second for a rate."""

    metric: Canonical
    over: Literal["each", "mean", "quantile"]
    """"each" request, or the "mean" or "quantile" of all."""
    limit: float
    strict: bool
    """Whether a value equal to the limit misses it."""
    text: str
    quantile: float | None = None
    """0 to 1, None unless over says so. Times are to be at most the limit, rates at least."""

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.metric in RATES

    def holds(self, value: float) -> bool:
        """Of a value in the unit of the limit."""
        if value == self.limit:
            return not self.strict
        return (value > self.limit) == self.is_rate


class Slo(msgspec.Struct, frozen=True):
    """A service level objective: all of its conditions must hold."""

    conditions: tuple[Condition, ...]

    @property
    def text(self) -> str:
        """As it was written, in one line."""
        return " ".join(condition.text for condition in self.conditions)

    @property
    def of_each(self) -> tuple[Condition, ...]:
        """Those that a request meets or does not; goodput counts requests that meet them all."""
        return tuple(one for one in self.conditions if one.over == "each")

    @property
    def of_all(self) -> tuple[Condition, ...]:
        """Those that the run meets or does not."""
        return tuple(one for one in self.conditions if one.over != "each")


def parse_slo(text: str | Sequence[str]) -> Slo:
    """Raises ConfigError that names the condition, what is wrong with it and what to write."""
    parts = [text] if isinstance(text, str) else list(text)
    words = [word for part in parts for word in re.split(r"[\s,;]+", part) if word]
    if not words:
        raise ConfigError(f"the SLO is empty; {_EXAMPLES}")
    return Slo(tuple(_condition(word) for word in words))


def _condition(word: str) -> Condition:
    match = _CONDITION.fullmatch(word)
    if match is None:
        raise ConfigError(f"SLO {shown(word)} is not name:limit; {_EXAMPLES}")
    metric = METRIC_NAMES.get(match["name"].lower())
    if metric is None:
        known = ", ".join(METRIC_NAMES)
        raise ConfigError(
            f"SLO {shown(word)}: metric {shown(match['name'])} is not known; use one of: {known}"
        )
    over, quantile = _statistic(word, match["statistic"])
    if over == "each" and metric in POOLED:
        raise ConfigError(
            f"SLO {shown(word)}: a request has many gaps between chunks; write tpot:… for their "
            f"mean, stall:… for the longest, or {match['name']}:p95<… for those of all requests"
        )
    operator = match["operator"]
    if operator is not None and (operator[0] == ">") != (metric in RATES):
        right, better = (">", "more") if metric in RATES else ("<", "less")
        raise ConfigError(
            f"SLO {shown(word)}: {better} {match['name']} is better; write {right} for its limit"
        )
    return Condition(
        metric=metric,
        over=over,
        limit=_limit(word, metric, match["limit"], match["unit"]),
        strict=operator in ("<", ">"),
        text=word,
        quantile=quantile,
    )


def _statistic(
    word: str, name: str | None
) -> tuple[Literal["each", "mean", "quantile"], float | None]:
    if name is None:
        return "each", None
    name = name.lower()
    if name in ("mean", "avg"):
        return "mean", None
    quantile = {"min": 0.0, "median": 0.5, "max": 1.0}.get(name)
    if quantile is None and re.fullmatch(r"p[0-9]+(\.[0-9]+)?", name):
        quantile = float(name[1:]) / 100
    if quantile is None or quantile > 1:
        raise ConfigError(
            f"SLO {shown(word)}: statistic {shown(name)} is not one of mean, median, min, max and "
            "p0 to p100, such as p95 or p99.9"
        )
    return "quantile", quantile


def _limit(word: str, metric: Canonical, figure: str, unit: str) -> float:
    if metric in RATES:
        if unit not in ("", "tok/s", "tokens/s"):
            raise ConfigError(
                f"SLO {shown(word)}: unit {shown(unit)} of a rate is not known; write "
                "tokens/s, or no unit"
            )
        factor = 1.0
    elif unit in _MS:
        factor = _MS[unit]
    else:
        raise ConfigError(f"SLO {shown(word)}: unit {shown(unit)} is not one of ms, s, us")
    try:
        limit = float(figure) * factor
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ConfigError(
            f"SLO {shown(word)}: limit {shown(figure)} must be a number above 0; {_EXAMPLES}"
        )
    return limit
