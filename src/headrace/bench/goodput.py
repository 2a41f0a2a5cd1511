"""Which requests were good enough: records judged by an SLO.

Judged from the intended send time unless asked otherwise: who waits to be sent waits too. A failed
request misses every limit and counts in every denominator; in percentiles it counts as one that
never answered (AIPerf's `adj_` metrics do that). One that the run's end cut off has missed the
limits it had passed by then, and says nothing of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from headrace.bench.definitions import DEFINITIONS, Clock, Definition, Measures
from headrace.bench.definitions.measure import start_ns
from headrace.bench.definitions.tokens import streamed_tokens
from headrace.bench.proportion import proportion_interval
from headrace.bench.record import RequestRecord
from headrace.bench.slo import Condition, Slo
from headrace.bench.statistics import CONFIDENCE, Interval, percentile
from headrace.errors import ConfigError

_NS_PER_MS = 1e6

# Metrics of the pace between tokens: a request that has no second one has none.
_PACES = frozenset({"tpot", "tps_user", "stall"})


class ConditionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one condition of an SLO."""

    condition: str
    share: float | None
    """Share of the judged requests that met a condition per request."""
    value: float | None
    """Value of a condition over all requests, in the limit's unit; None if nothing was measured or
    failures reach it."""
    met: bool | None
    """Whether it holds (of each request: for all of them); None where it is not known."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run under an SLO."""

    slo: str
    definition: str
    clock: Clock
    judged: int
    """Requests that met or missed it."""
    undecided: int
    """The others, for which the run ended too soon or no tokens were counted."""
    good: int | None
    """Those that met every condition of each request."""
    fraction: float | None
    """Good over judged, and the interval in which the true one lies with CONFIDENCE. Rates are per
    second of the run. All these are None without a condition of each request."""
    requests_per_s: float | None
    tokens_per_s: float | None
    conditions: tuple[ConditionResult, ...]
    met: bool | None
    """Whether all conditions of the whole run hold; None without conditions, or where too
    little was measured to decide."""
    fraction_interval: Interval | None = None


def judge(
    slo: Slo,
    records: Sequence[RequestRecord],
    duration_s: float,
    *,
    definition: Definition = DEFINITIONS["headrace"],
    clock: Clock = "intended",
) -> Goodput:
    """Raises ConfigError where the definition has no such metric."""
    for condition in slo.conditions:
        if definition.metric(condition.metric) is None:
            raise ConfigError(
                f"SLO {condition.text}: {definition.name} has no such metric; use --definitions "
                "headrace"
            )
    measured = [(record, definition.measure(record, clock)) for record in records]
    standings = [
        [_standing(condition, record, got, definition, clock) for condition in slo.of_each]
        for record, got in measured
    ]
    met = [_together(one, record) for one, (record, _) in zip(standings, measured, strict=True)]
    judged = sum(one is not None for one in met)
    good = [got for one, (_, got) in zip(met, measured, strict=True) if one and got]
    results = tuple(
        _of_each(condition, [one[at] for one in standings])
        for at, condition in enumerate(slo.of_each)
    ) + tuple(_of_all(condition, measured, definition, clock) for condition in slo.of_all)
    overall = [one.met for one in results[len(slo.of_each) :]]
    counted = bool(slo.of_each)
    tokens = sum(one.output_tokens or 0 for one in good)
    return Goodput(
        slo=slo.text,
        definition=definition.name,
        clock=clock,
        judged=judged,
        undecided=len(met) - judged,
        good=len(good) if counted else None,
        fraction=len(good) / judged if counted and judged else None,
        requests_per_s=len(good) / duration_s if counted and duration_s > 0 else None,
        tokens_per_s=tokens / duration_s if counted and duration_s > 0 else None,
        conditions=results,
        met=_all(overall),
        fraction_interval=_interval(len(good), judged) if counted and judged else None,
    )


def _interval(good: int, judged: int) -> Interval:
    return Interval(*proportion_interval(good, judged, (1 - CONFIDENCE) / 2))


def _all(met: Sequence[bool | None]) -> bool | None:
    """None where one is unknown and none is missed, and of nothing."""
    if False in met:
        return False
    return None if None in met or not met else True


def _together(standings: Sequence[bool | None], record: RequestRecord) -> bool | None:
    if standings:
        return _all(standings)
    if record.failure is None:
        return True
    return None if record.failure.kind == "cancelled" else False


def _value(condition: Condition, got: Measures | None, definition: Definition) -> float | None:
    """In the unit of the limit."""
    metric = definition.metric(condition.metric)
    if got is None or metric is None:
        return None
    if metric.each == "rate":
        return got.rates.get(metric.name)
    value = got.times_ns.get(metric.name)
    return None if value is None else value / _NS_PER_MS


def _standing(
    condition: Condition,
    record: RequestRecord,
    got: Measures | None,
    definition: Definition,
    clock: Clock,
) -> bool | None:
    """Whether a request meets a condition; None where it cannot be said."""
    if got is None:
        cut_off = record.failure is not None and record.failure.kind == "cancelled"
        return None if cut_off and not _passed(condition, record, clock) else False
    value = _value(condition, got, definition)
    if value is not None:
        return condition.holds(value)
    if not record.streamed:
        return None
    if condition.metric not in _PACES:
        return False
    if streamed_tokens(record) is None and len(record.content) > 1:
        return None
    return definition.without_tpot == "met"


def _passed(condition: Condition, record: RequestRecord, clock: Clock) -> bool:
    """Whether a request that was cut off had already taken too long by then."""
    if record.end_ns is None or (clock == "sent" and record.sent_ns is None):
        return False
    start = start_ns(record, clock)
    first = record.content[0].at_ns if record.content else record.end_ns
    at_least = {"ttft": first - start, "e2e": record.end_ns - start}.get(condition.metric)
    return at_least is not None and not condition.holds(at_least / _NS_PER_MS)


def _of_each(condition: Condition, standings: Sequence[bool | None]) -> ConditionResult:
    known = [one for one in standings if one is not None]
    share = sum(known) / len(known) if known else None
    return ConditionResult(
        condition=condition.text,
        share=share,
        value=None,
        met=None if share is None else share == 1,
    )


def _of_all(
    condition: Condition,
    measured: Sequence[tuple[RequestRecord, Measures | None]],
    definition: Definition,
    clock: Clock,
) -> ConditionResult:
    """A mean is of requests that have the metric; a percentile of those that never got there, too.

    The latter failed, or were answered without the content that the metric waits for.
    """
    metric = definition.metric(condition.metric)
    if metric is not None and metric.each == "gap":
        values = [
            gap / _NS_PER_MS
            for _, got in measured
            if got is not None
            for gap in got.gaps_ns.get(metric.name, ())
        ]
    else:
        known = [_value(condition, got, definition) for _, got in measured]
        values = [value for value in known if value is not None]
        if condition.over == "quantile":
            never = sum(
                _standing(condition, record, got, definition, clock) is False
                for value, (record, got) in zip(known, measured, strict=True)
                if value is None and (got is None or condition.metric not in _PACES)
            )
            values += [0.0 if condition.is_rate else math.inf] * never
    if not values:
        return ConditionResult(condition=condition.text, share=None, value=None, met=None)
    if condition.quantile is None:
        value = float(np.mean(values))
    else:
        # Between a number and infinity there is nothing.
        how = "nearest" if math.inf in values else definition.interpolation
        value = percentile(sorted(values), condition.quantile, how)
    return ConditionResult(
        condition=condition.text,
        share=None,
        value=None if math.isinf(value) else value,
        met=condition.holds(value),
    )
