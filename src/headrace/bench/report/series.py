"""The runs of a kept series, summarized again under any definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.bench.definitions import Definition
from headrace.bench.load_point import LoadPoint, load_point
from headrace.bench.report.files import read_result, read_run
from headrace.bench.series import Series
from headrace.bench.slo import Slo
from headrace.bench.summary import summarize


def series_points(
    folder: Path, series: Series, definition: Definition, slo: Slo | None
) -> Iterator[LoadPoint]:
    """Every run that completed something, under the definition. One record in memory at a time."""
    for one in series.runs:
        prices = read_result(folder / one.folder).summary.cost.prices
        run = read_run(folder / one.folder)
        summary = summarize(run, definition=definition, slo=slo, prices=prices)
        point = load_point(one.name, summary, one.rate, users=one.users)
        if point is not None:
            yield point
