"""Runs side by side: figures of each, how many times the first's they are, and how sure that is.

Values are those of the summaries. Intervals of ratios are from samples that stand for themselves:
one value of each request, with its weight where the definition weighs them, each request's gaps
together, each second for throughput. What the runs did not have in common is said: a
ratio between runs of different workloads is no comparison of servers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from headrace.bench.definitions import DEFINITIONS, Clock, Definition
from headrace.bench.goodput import judge
from headrace.bench.pooled import PooledSamples
from headrace.bench.ratio import RESAMPLES, Ratio, ratio_of_means, ratio_of_percentiles
from headrace.bench.record import RunRecord
from headrace.bench.report.caveats import Caveat, caveats
from headrace.bench.report.clustered import (
    ratio_of_pooled_means,
    ratios_of_pooled_percentiles,
)
from headrace.bench.report.samples import RunSamples
from headrace.bench.report.shares import ratio_of_shares
from headrace.bench.report.threshold import Outcome, Threshold, judged, quantile_of
from headrace.bench.server_figures import ServerFigures
from headrace.bench.slo import Slo
from headrace.bench.statistics import Samples
from headrace.bench.summary import Summary, summarize
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run as a comparison takes it."""

    name: str
    run: RunRecord


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of each run, in their order; None where a run has none."""

    name: str
    """As `METRICS` has it, metric: as the definition's tool calls it, with the clock."""
    metric: str
    statistic: str
    unit: str
    values: tuple[float | None, ...]
    ratios: tuple[Ratio | None, ...]
    """Ratios to the first run; None for the first run itself."""
    better: str | None = None
    """"less" or "more" is, None: neither."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two or more runs with the first of them."""

    definition: str
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    differences: tuple[tuple[str, tuple[str | int | float | bool | None, ...]], ...]
    """What is not the same in their provenance, (key, value of each run)."""
    caveats: tuple[Caveat, ...] = ()
    """What of it, and of what came out, makes ratios mislead."""
    outcomes: tuple[Outcome, ...] = ()
    """Outcomes of the given thresholds."""

    @property
    def fails(self) -> bool:
        """Whether a threshold was crossed, or is on a figure that a run does not have."""
        return any(one.fails for one in self.outcomes)


_STATISTICS = ("p50", "p90", "p99")

_LATENCIES: tuple[tuple[str, str, tuple[Clock, ...]], ...] = (
    ("ttft", "ttft", ("intended", "sent")),
    ("ttfot", "ttfot", ("intended", "sent")),
    ("tpot", "tpot", ("sent",)),
    ("itl", "itl_chunk", ("sent",)),
    ("stall", "stall", ("sent",)),
    ("e2e", "e2e", ("intended", "sent")),
)
"""Our name, the canonical one, and the clocks; those without a start are the same by either."""

METRICS = (
    *(name for name, _, _ in _LATENCIES),
    *("tps", "rps", "offered", "in_flight", "failed", "good", "goodput"),
    *("mbu", "mfu", "kv", "hits", "preemptions"),
)
"""What lines are called: where people choose some of them."""


def compare(
    runs: Sequence[NamedRun],
    *,
    source: random.Random,
    definition: Definition = DEFINITIONS["headrace"],
    slo: Slo | None = None,
    resamples: int = RESAMPLES,
    metrics: Collection[str] = METRICS,
    thresholds: Sequence[Threshold] = (),
) -> Comparison:
    """source: of chance, for the bootstrap with so many resamples. metrics: those that are shown.

    Raises ConfigError of fewer than two runs, and of a threshold on `good` without an SLO.
    """
    if len(runs) < 2:
        count = "1 run" if runs else "no runs"
        raise ConfigError(f"{count} to compare; name two results or more")
    if slo is None and any(one.metric == "good" for one in thresholds):
        raise ConfigError("--fail-if good<… needs an SLO: add --goodput 'ttft:500 tpot:50'")
    names = tuple(one.name for one in runs)
    sides = _Sides(
        [RunSamples(one.run, definition) for one in runs],
        [summarize(one.run, definition=definition, slo=slo) for one in runs],
        source,
        resamples,
        slo,
    )
    lines = [
        line
        for name, canonical, clocks in _LATENCIES
        if name in metrics
        for clock in clocks
        for line in sides.latency(name, canonical, clock, _STATISTICS)
    ]
    lines = _without_repeats(lines)
    lines += [line for line in sides.rates() if line.name in metrics]
    return Comparison(
        definition=definition.name,
        names=names,
        lines=tuple(lines),
        differences=_differences(runs),
        caveats=caveats(names, [one.run for one in runs], sides.summaries, definition.name),
        outcomes=tuple(
            outcome
            for threshold in thresholds
            for outcome in judged(threshold, names, sides.ratios(threshold))
        ),
    )


def _without_repeats(lines: list[Line]) -> list[Line]:
    """Where nobody reasons the first token of the answer is the first token."""
    told = {line.values for line in lines if line.name == "ttft"}
    return [line for line in lines if line.name != "ttfot" or line.values not in told]


class _Sides:
    """The runs under one definition; the first is the base."""

    def __init__(
        self,
        samples: Sequence[RunSamples],
        summaries: Sequence[Summary],
        source: random.Random,
        resamples: int,
        slo: Slo | None,
    ) -> None:
        self.samples = samples
        self.summaries = summaries
        self._source = source
        self._resamples = resamples
        self._slo = slo

    def ratios(self, of: Threshold) -> Sequence[Ratio | None]:
        """What a threshold is on, of all runs."""
        for name, canonical, clocks in _LATENCIES:
            if name == of.metric:
                clock = of.clock if of.clock in clocks else clocks[0]
                found = self.latency(name, canonical, clock, (of.statistic,))
                return found[0].ratios if found else [None] * len(self.samples)
        return next(
            (line.ratios for line in self.rates() if line.name == of.metric),
            [None] * len(self.samples),
        )

    def latency(
        self, name: str, canonical: str, clock: Clock, statistics: Sequence[str]
    ) -> list[Line]:
        """A line for each statistic; none where no run has the metric."""
        metric = self.samples[0].definition.metric(canonical)
        if metric is None or metric.each == "rate":
            return []
        paced = canonical in ("tpot", "stall") or metric.each == "gap"
        every = [one.values_ms(canonical, clock) for one in self.samples]
        sides = [one for one in every if one is not None]
        alone = metric.each == "request" and all(one.weights is None for one in sides)
        figures = self._of_requests(sides, statistics) if alone else self._pooled(sides, statistics)
        return [
            Line(
                name=name,
                metric=metric.name if paced else f"{metric.name}, {clock}",
                statistic=statistic,
                unit="ms",
                values=tuple(values),
                ratios=(None, *ratios),
                better="less",
            )
            for statistic, (values, ratios) in zip(statistics, figures, strict=True)
            if any(value is not None for value in values)
        ]

    def _of_requests(
        self, sides: Sequence[PooledSamples], statistics: Sequence[str]
    ) -> list[tuple[list[float | None], list[Ratio | None]]]:
        """Of one value a request, each as good as another."""
        return [
            (
                [_statistic(one, statistic) for one in sides],
                [self._ratio(one, sides[0], statistic) for one in sides[1:]],
            )
            for statistic in statistics
        ]

    def _ratio(self, ours: PooledSamples, base: PooledSamples, statistic: str) -> Ratio | None:
        if statistic == "mean":
            return ratio_of_means(ours.ordered, base.ordered)
        return ratio_of_percentiles(
            ours.ordered,
            base.ordered,
            quantile_of(statistic),
            source=self._source,
            resamples=self._resamples,
            interpolation=base.interpolation,
        )

    def _pooled(
        self, sides: Sequence[PooledSamples], statistics: Sequence[str]
    ) -> list[tuple[list[float | None], list[Ratio | None]]]:
        """Of several values a request, or of such as weigh unlike."""
        quantiles = [quantile_of(one) for one in statistics if one != "mean"]
        by_run = [
            ratios_of_pooled_percentiles(
                one, sides[0], quantiles, source=self._source, resamples=self._resamples
            )
            for one in sides[1:]
        ]
        percentiles = [iter(ratios) for ratios in by_run]
        return [
            (
                [_statistic(one, statistic) for one in sides],
                [ratio_of_pooled_means(one, sides[0]) for one in sides[1:]]
                if statistic == "mean"
                else [next(ratios) for ratios in percentiles],
            )
            for statistic in statistics
        ]

    def rates(self) -> list[Line]:
        """Throughput, and what became of the requests; those that no run has are left out."""
        tokens = [one.steady_tokens_per_s() for one in self.samples]
        ended = [one.steady_requests_per_s() for one in self.samples]
        failed = [_failed(one) for one in self.samples]
        lines = [
            _of_samples("tps", "output, steady", "tokens/s", tokens, "more"),
            _of_samples("rps", "completed, steady", "requests/s", ended, "more"),
            _plain("offered", "offered", "requests/s", [o.offered_per_s for o in self.summaries]),
            _plain(
                "in_flight", "in flight", "requests", [o.concurrency.mean for o in self.summaries]
            ),
            _of_shares("failed", "failed", failed, "less"),
        ]
        if self._slo is not None:
            good = [_good(one, self._slo) for one in self.samples]
            per_s = [
                None if o.goodput is None else o.goodput.requests_per_s for o in self.summaries
            ]
            lines.append(_of_shares("good", "good", good, "more"))
            lines.append(_plain("goodput", "goodput", "requests/s", per_s, "more"))
        lines += _of_servers([one.server for one in self.summaries])
        return [line for line in lines if any(value is not None for value in line.values)]


def _statistic(of: PooledSamples, statistic: str) -> float | None:
    return of.mean if statistic == "mean" else of.percentile(quantile_of(statistic))


def _of_servers(told: Sequence[ServerFigures | None]) -> list[Line]:
    """What the servers said of themselves, one figure a run."""

    def of(field: Callable[[ServerFigures], float | None]) -> list[float | None]:
        return [None if one is None else field(one) for one in told]

    return [
        _plain("mbu", "MBU, reported by server", "share", of(lambda one: one.mbu)),
        _plain("mfu", "MFU, reported by server", "share", of(lambda one: one.mfu)),
        _plain("kv", "KV use, maximum", "share", of(lambda one: one.kv_use_most)),
        _plain("hits", "prefix hits", "share", of(lambda one: one.prefix_hit_share), "more"),
        _plain("preemptions", "preemptions", "", of(lambda one: one.preemptions), "less"),
    ]


def _of_samples(name: str, metric: str, unit: str, sides: Sequence[Samples], better: str) -> Line:
    """Means of what stands for itself."""
    return Line(
        name=name,
        metric=metric,
        statistic="mean",
        unit=unit,
        values=tuple(float(one.mean()) if one.size else None for one in sides),
        ratios=(None, *(ratio_of_means(one, sides[0]) for one in sides[1:])),
        better=better,
    )


def _plain(
    name: str, metric: str, unit: str, values: Sequence[float | None], better: str | None = None
) -> Line:
    """Of one figure a run: without intervals."""
    base = values[0]
    return Line(
        name=name,
        metric=metric,
        statistic="",
        unit=unit,
        values=tuple(values),
        ratios=(
            None,
            *(
                None if value is None or not base else Ratio(value / base, None, None)
                for value in values[1:]
            ),
        ),
        better=better,
    )


def _failed(of: RunSamples) -> list[bool]:
    """What the run's end cut off did neither fail nor succeed."""
    ended = [one for one in of.records if one.failure is None or one.failure.kind != "cancelled"]
    return [one.failure is not None for one in ended]


def _good(of: RunSamples, slo: Slo) -> list[bool]:
    """Of each request that met the SLO's limits of each request, or missed one."""
    if not slo.of_each:
        return []
    each = Slo(slo.of_each)
    met = [judge(each, [record], 1.0) for record in of.records]
    return [bool(one.good) for one in met if one.judged]


def _of_shares(name: str, metric: str, sides: Sequence[Sequence[bool]], better: str) -> Line:
    """Which part of the requests it holds of."""
    return Line(
        name=name,
        metric=metric,
        statistic="",
        unit="share",
        values=tuple(sum(one) / len(one) if one else None for one in sides),
        ratios=(None, *(ratio_of_shares(one, sides[0]) for one in sides[1:])),
        better=better,
    )


def _differences(
    runs: Sequence[NamedRun],
) -> tuple[tuple[str, tuple[str | int | float | bool | None, ...]], ...]:
    keys = dict.fromkeys(key for one in runs for key in one.run.about)
    found = ((key, tuple(one.run.about.get(key) for one in runs)) for key in keys)
    return tuple(
        (key, values) for key, values in found if any(value != values[0] for value in values)
    )
