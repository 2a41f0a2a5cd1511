"""The figures of a run that people read first; `table` has all of them.

Latencies are named as the definition names them, and chosen by what they are called here, so that
every definition shows the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.text import Text

from headrace.bench.report.latency_sheet import spreads, statistics
from headrace.bench.report.sheet import goodput
from headrace.bench.report.table import printable, sheet_table, verdict
from headrace.bench.summary import Summary
from headrace.page.figures import count, figure, share
from headrace.page.sheet import Cell, Sheet

HEADLINES = ("ttft", "tpot", "itl_chunk", "e2e", "tps_user")
"""Latencies that are shown, by their names under headrace's own definitions."""

_COLUMNS = ("p50", "p90", "p99")
# Of mean, p50, p90, p95, p99 and most.
_PLACES = (1, 2, 4)


class BriefSummary:
    """Latencies, rates, errors, goodput and the client's verdict, in some twenty lines."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """The same at every width: it fits 80 columns."""
        summary = self._summary
        yield sheet_table(brief_latencies(summary), tight=True)
        yield sheet_table(brief_rates(summary), tight=True)
        if summary.goodput is not None:
            yield sheet_table(goodput(summary), tight=True)
        yield verdict(summary)
        if summary.saturation is not None:
            yield Padding(Text(printable(summary.saturation.told)), (0, 0, 0, 2))
        hint = "--detail: every metric, means, intervals, tokens and what each metric counts"
        yield Padding(Text(hint, style="dim"), (0, 0, 0, 2))


def brief_latencies(summary: Summary) -> Sheet:
    """A row for each of HEADLINES, and for both send times where they differ."""
    ours = {row.name: row.canonical or row.name for row in summary.table}
    rows = []
    for name, clock, spread in spreads(summary):
        if ours.get(name) not in HEADLINES:
            continue
        cells = statistics(spread.distribution)
        unit = "" if spread.unit == "ms" else f", {spread.unit}"
        figures = (cells[place]._replace(note="") for place in _PLACES)
        rows.append((Cell(f"{name}{unit}"), Cell(clock), *figures))
    title = f"Latency in milliseconds, by {summary.definition}"
    return Sheet(title, ("metric", "from", *_COLUMNS), tuple(rows), names=2)


def brief_rates(summary: Summary) -> Sheet:
    """Requests by how they ended, and what was done per second."""
    of = summary.requests
    failed = share(of.failed / of.measured) if of.measured else ""
    lines = [
        ("completed", f"{count(of.completed)} of {count(of.measured)}", "requests"),
        ("failed", f"{count(of.failed)} ({failed})" if of.failed else "0", "requests"),
        *((f"error: {name}", count(number), "requests") for name, number in of.errors.items()),
        ("completed", figure(summary.rps), "requests/s"),
        ("output", figure(summary.tps_system), "tokens/s"),
        ("duration", figure(summary.duration_s), "s"),
    ]
    rows = tuple(
        (Cell(name, verdict=False if name == "failed" and of.failed else None), Cell(value),
         Cell(unit))
        for name, value, unit in lines
    )  # fmt: skip
    return Sheet("Requests and rates", ("", "value", "unit"), rows)
