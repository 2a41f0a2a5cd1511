"""Runs side by side: figures of each, how many times the first's they are, and how sure that is.

Ratios have an interval where requests (or seconds, for throughput) stand for themselves; pooled
gaps do not, so theirs have none. What the runs did not have in common is said: a ratio between runs
of different workloads is no comparison of servers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from headrace.bench.definitions import DEFINITIONS, Clock, Definition
from headrace.bench.ratio import RESAMPLES, Ratio, ratio_of_means, ratio_of_percentiles
from headrace.bench.record import RunRecord
from headrace.bench.report.figures import DASH, figure, share
from headrace.bench.report.samples import RunSamples
from headrace.bench.report.sheet import Cell, Sheet
from headrace.bench.slo import Slo
from headrace.bench.statistics import CONFIDENCE, percentile
from headrace.bench.summary import Summary, summarize
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run as a comparison takes it."""

    name: str
    run: RunRecord


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of each run, in their order; None where a run has none.

    ratios: to the first run, its own left out (None). better: "less" or "more" is, None: neither.
    """

    metric: str
    statistic: str
    unit: str
    values: tuple[float | None, ...]
    ratios: tuple[Ratio | None, ...]
    better: str | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Of two runs or more; the first is what the others are compared with.

    differences: what is not the same in their provenance, (key, value of each run).
    """

    definition: str
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    differences: tuple[tuple[str, tuple[str | int | float | bool | None, ...]], ...]


_QUANTILES = (0.5, 0.9, 0.99)

_METRICS: tuple[tuple[str, Clock], ...] = (
    ("ttft", "intended"),
    ("ttft", "sent"),
    ("ttfot", "sent"),
    ("tpot", "sent"),
    ("itl_chunk", "sent"),
    ("stall", "sent"),
    ("e2e", "intended"),
    ("e2e", "sent"),
)


def compare(
    runs: Sequence[NamedRun],
    *,
    source: random.Random,
    definition: Definition = DEFINITIONS["headrace"],
    slo: Slo | None = None,
    resamples: int = RESAMPLES,
) -> Comparison:
    """source: of chance, for the bootstrap with so many resamples.

    Raises ConfigError of fewer than two runs.
    """
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} runs to compare; name two results or more")
    samples = [RunSamples(one.run, definition) for one in runs]
    summaries = [summarize(one.run, definition=definition, slo=slo) for one in runs]
    lines = [*_latencies(samples, definition, source, resamples), *_rates(samples, summaries)]
    return Comparison(
        definition=definition.name,
        names=tuple(one.name for one in runs),
        lines=tuple(lines),
        differences=_differences(runs),
    )


def _latencies(
    samples: Sequence[RunSamples], definition: Definition, source: random.Random, resamples: int
) -> list[Line]:
    lines = []
    for canonical, clock in _METRICS:
        metric = definition.metric(canonical)
        if metric is None:
            continue
        values = [np.sort(np.asarray(one.values_ms(canonical, clock))) for one in samples]
        if not any(len(one) for one in values):
            continue
        pooled = metric.each == "gap"
        name = (
            metric.name if pooled or canonical in ("tpot", "stall") else f"{metric.name}, {clock}"
        )
        for quantile in _QUANTILES:
            ratios = [
                _plain(_at(one, quantile), _at(values[0], quantile))
                if pooled
                else ratio_of_percentiles(
                    one, values[0], quantile, source=source, resamples=resamples
                )
                for one in values[1:]
            ]
            lines.append(
                Line(
                    metric=name,
                    statistic=f"p{quantile * 100:.0f}",
                    unit="ms",
                    values=tuple(_at(one, quantile) for one in values),
                    ratios=(None, *ratios),
                    better="less",
                )
            )
    return lines


def _at(ordered: np.ndarray[tuple[int], np.dtype[np.float64]], quantile: float) -> float | None:
    return percentile(ordered, quantile) if len(ordered) else None


def _plain(ours: float | None, base: float | None) -> Ratio | None:
    """Without an interval."""
    return None if ours is None or not base else Ratio(ours / base, None, None)


def _rates(samples: Sequence[RunSamples], summaries: Sequence[Summary]) -> list[Line]:
    by_second = [one.steady_tokens_per_s() for one in samples]
    means = [float(one.mean()) if one.size else None for one in by_second]
    lines = [
        Line(
            metric="output, steady",
            statistic="mean",
            unit="tokens/s",
            values=tuple(means),
            ratios=(None, *(ratio_of_means(one, by_second[0]) for one in by_second[1:])),
            better="more",
        )
    ]
    failed = [
        one.requests.failed / one.requests.measured if one.requests.measured else None
        for one in summaries
    ]
    judged = [one.goodput for one in summaries]
    plain: list[tuple[str, str, list[float | None], str | None]] = [
        ("offered", "requests/s", [one.offered_per_s for one in summaries], None),
        ("completed", "requests/s", [one.rps for one in summaries], "more"),
        ("output", "tokens/s", [one.tps_system for one in summaries], "more"),
        ("in flight", "requests", [one.concurrency.mean for one in summaries], None),
        ("failed", "share", failed, "less"),
        ("good", "share", [None if one is None else one.fraction for one in judged], "more"),
        (
            "goodput",
            "requests/s",
            [None if one is None else one.requests_per_s for one in judged],
            "more",
        ),
    ]
    for name, unit, values, better in plain:
        if any(value is not None for value in values):
            ratios = (None, *(_plain(value, values[0]) for value in values[1:]))
            lines.append(
                Line(
                    metric=name,
                    statistic="",
                    unit=unit,
                    values=tuple(values),
                    ratios=ratios,
                    better=better,
                )
            )
    return lines


def _differences(
    runs: Sequence[NamedRun],
) -> tuple[tuple[str, tuple[str | int | float | bool | None, ...]], ...]:
    keys = dict.fromkeys(key for one in runs for key in one.run.about)
    found = ((key, tuple(one.run.about.get(key) for one in runs)) for key in keys)
    return tuple(
        (key, values) for key, values in found if any(value != values[0] for value in values)
    )


def comparison_sheets(of: Comparison) -> list[Sheet]:
    """The comparison as tables for terminal and page."""
    columns = ["metric", "", "unit", of.names[0]]
    for name in of.names[1:]:
        columns += [name, "ratio"]
    rows = []
    for line in of.lines:
        cells = [Cell(line.metric), Cell(line.statistic), Cell(line.unit)]
        for at, (value, ratio) in enumerate(zip(line.values, line.ratios, strict=True)):
            shown = share(value) if line.unit == "share" else figure(value)
            cells.append(Cell(shown))
            if at:
                cells.append(_ratio_cell(ratio, line.better))
        rows.append(tuple(cells))
    notes = (
        f"Ratio: how many times the figure of {of.names[0]}; below it where the true ratio lies "
        f"with {CONFIDENCE:.0%} confidence. Coloured where that leaves 1 out. Without an interval: "
        "too few samples, or samples that depend on each other.",
    )
    made = [Sheet(f"Comparison, by {of.definition}", tuple(columns), tuple(rows), notes, names=3)]
    if of.differences:
        made.append(
            Sheet(
                "What the runs do not have in common",
                ("", *of.names),
                tuple(
                    (Cell(key), *(Cell(DASH if value is None else str(value)) for value in values))
                    for key, values in of.differences
                ),
                names=1 + len(of.names),
            )
        )
    return made


def _ratio_cell(ratio: Ratio | None, better: str | None) -> Cell:
    if ratio is None:
        return Cell(DASH)
    verdict = None
    if ratio.differs and better is not None:
        verdict = (ratio.ratio < 1) == (better == "less")
    note = ""
    if ratio.low is not None and ratio.high is not None:
        note = f"{_times(ratio.low)}–{_times(ratio.high)}"
    return Cell(f"{_times(ratio.ratio)}×", note, verdict)


def _times(value: float) -> str:
    """Two digits after the point: a ratio is read beside 1."""
    return f"{value:.2f}" if 0.1 <= value < 10 else figure(value)


def comparison_json(of: Comparison) -> bytes:
    """As a JSON object; ratios are [ratio, low, high]."""
    return msgspec.json.format(msgspec.json.encode(of), indent=1) + b"\n"
