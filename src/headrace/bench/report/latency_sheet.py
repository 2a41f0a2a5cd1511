"""The table of latencies: a row for each metric and clock, percentiles with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.statistics import CONFIDENCE, FEWEST_FOR_P99, Distribution, Interval
from headrace.bench.summary import Spread, Summary
from headrace.bench.verdict import ALLOWED_SHARE_OF_TTFT, LEAST_ALLOWED_LAG_NS
from headrace.page.figures import count, figure
from headrace.page.sheet import Cell, Sheet

MARK = "*"
"""Behind a percentile of too few samples."""


def latencies(summary: Summary) -> Sheet:
    """A row for each metric and clock; one row, from the actual send time, where both give nearly
    the same."""
    rows = [
        (Cell(name), Cell(clock), Cell(spread.unit), *_figures(spread.distribution))
        for name, clock, spread in spreads(summary)
    ]
    notes = (
        f"Below a figure: the interval that holds the true one with {CONFIDENCE:.0%} "
        "confidence; for pooled gaps by resampling requests, as the gaps of a request depend "
        "on each other.",
        *_marked(rows),
    )
    columns = ("metric", "from", "unit", *_FIGURES)
    return Sheet(f"Latency, by {summary.definition}", columns, tuple(rows), notes, names=3)


def narrow_latencies(summary: Summary) -> Sheet:
    """The same for 80 columns: without intervals, units behind those names that have another."""
    found = spreads(summary)
    longest_ms = max((one.distribution.most for *_, one in found if one.unit == "ms"), default=0)
    unit, scale = ("seconds", 1e-3) if longest_ms >= _MS_TO else ("milliseconds", 1.0)
    rows = []
    for name, clock, spread in found:
        timed = spread.unit == "ms"
        figures = _figures(spread.distribution, scale if timed else 1.0)
        told = Cell(name if timed else f"{name}, {spread.unit}")
        rows.append((told, Cell(clock), *(cell._replace(note="") for cell in figures)))
    notes = (f"{CONFIDENCE:.0%} intervals: in a wider terminal and on the page.", *_marked(rows))
    title = f"Latency in {unit}, by {summary.definition}"
    return Sheet(title, ("metric", "from", *_FIGURES), tuple(rows), notes, names=2)


_FIGURES = ("count", "mean", "p50", "p90", "p95", "p99", "most")

_ALLOWED_LAG_MS = LEAST_ALLOWED_LAG_NS / 1e6

_MS_TO = 100_000
"""From so many milliseconds on a narrow table is in seconds."""


def spreads(summary: Summary) -> list[tuple[str, str, Spread]]:
    """Name, clock and spread, row by row."""
    found: list[tuple[str, str, Spread]] = []
    two = _two_clocks(summary)
    for name in dict.fromkeys([*summary.from_intended, *summary.from_sent]):
        wanted, sent = summary.from_intended.get(name), summary.from_sent.get(name)
        if wanted is not None and sent is not None and (wanted == sent or not two):
            found.append((name, "", sent))
            continue
        found += [
            (name, clock, spread)
            for clock, spread in (("intended", wanted), ("sent", sent))
            if spread is not None
        ]
    others = (
        ("queue, reported by server", summary.queue),
        ("prompt", summary.prompt_tokens),
        ("output", summary.output_tokens),
    )
    return [*found, *((name, "", spread) for name, spread in others if spread is not None)]


def _two_clocks(summary: Summary) -> bool:
    """Whether any latency differs notably by them: by more than the lag that a client is allowed,
    or by more than a tenth of itself. No request ever leaves in the very nanosecond."""
    pairs = [
        (summary.from_intended[name].distribution, sent.distribution)
        for name, sent in summary.from_sent.items()
        if sent.unit == "ms" and name in summary.from_intended
    ]
    return any(
        abs(later - earlier) > min(_ALLOWED_LAG_MS, ALLOWED_SHARE_OF_TTFT * earlier)
        for wanted, sent in pairs
        for later, earlier in zip(_shown(wanted), _shown(sent), strict=True)
    )


def _shown(of: Distribution) -> tuple[float, ...]:
    return of.mean, of.p50, of.p90, of.p95, of.p99, of.most


def _figures(of: Distribution, scale: float = 1.0) -> tuple[Cell, ...]:
    return (Cell(count(of.count)), *statistics(of, scale))


def _marked(rows: Sequence[tuple[Cell, ...]]) -> tuple[str, ...]:
    if not any(cell.text.endswith(MARK) for row in rows for cell in row):
        return ()
    return (
        f"{MARK} From fewer than {FEWEST_FOR_P99:,} samples (for gaps: requests): little more "
        "than the maximum.",
    )


def statistics(of: Distribution, scale: float = 1.0) -> tuple[Cell, ...]:
    """Mean, p50, p90, p95, p99 and most, each times `scale`; intervals are not scaled."""
    return (
        Cell(figure(of.mean * scale), interval(of.mean_interval)),
        Cell(figure(of.p50 * scale), interval(of.p50_interval)),
        Cell(figure(of.p90 * scale)),
        Cell(figure(of.p95 * scale)),
        Cell(figure(of.p99 * scale) + (MARK if of.p99_marked else ""), interval(of.p99_interval)),
        Cell(figure(of.most * scale)),
    )


def interval(of: Interval) -> str:
    """Empty where neither bound is known."""
    if of.low is None and of.high is None:
        return ""
    if of.low is None:
        return f"≤ {figure(of.high)}"
    return f"≥ {figure(of.low)}" if of.high is None else f"{figure(of.low)}–{figure(of.high)}"
