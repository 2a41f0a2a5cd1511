"""Runs that belong together, a sweep or a search: which folder holds which, and what came of it.

`series.json` is written anew after each run, so that it holds what there was when a client died.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from headrace.bench.definitions import Definition
from headrace.bench.load.search import SearchResult
from headrace.bench.report.files import read_result, read_run
from headrace.bench.report.plots.load_curve import LoadPoint, load_point
from headrace.bench.slo import Slo
from headrace.bench.summary import summarize
from headrace.errors import ConfigError, shown
from headrace.weights.atomic_file import atomic_file

SERIES, RUNS = "series.json", "runs"

_FORMAT = 1


class SeriesRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run. rate: that was offered; None of a closed loop. folder: within the series'."""

    name: str
    rate: float | None
    folder: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """shown: folder of the run that the report's tables are of; None: the series did not end.

    attainment: share of requests that are to meet limits of each.
    """

    kind: Literal["sweep", "search"]
    runs: tuple[SeriesRun, ...]
    attainment: float
    shown: str | None = None
    search: SearchResult | None = None
    format: int = _FORMAT


def write_series(folder: Path, series: Series) -> None:
    """Into the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / SERIES) as file:
        file.write(msgspec.json.format(msgspec.json.encode(series), indent=1) + b"\n")


def forget_runs(folder: Path) -> None:
    """Of a series that was saved here before, as far as it lists them."""
    series = read_series(folder)
    if series is None:
        return
    (folder / SERIES).unlink(missing_ok=True)
    for one in series.runs:
        shutil.rmtree(folder / one.folder, ignore_errors=True)


def read_series(folder: Path) -> Series | None:
    """None where a folder has none. Raises ConfigError of one that this version cannot read."""
    path = folder / SERIES
    try:
        series = msgspec.json.decode(path.read_bytes(), type=Series)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{shown(str(path))} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{shown(str(path))} is not a list of runs of headrace bench: {error}"
        ) from error
    if series.format != _FORMAT:
        raise ConfigError(
            f"{shown(str(path))} has format {series.format}, this version reads {_FORMAT}; use the "
            "version that wrote it"
        )
    if any(Path(one.folder).is_absolute() or ".." in Path(one.folder).parts for one in series.runs):
        raise ConfigError(f"{shown(str(path))}: folder is outside of the series' own")
    return series


def series_points(
    folder: Path, series: Series, definition: Definition, slo: Slo | None
) -> Iterator[LoadPoint]:
    """Every run that completed something, under the definition. One record in memory at a time."""
    for one in series.runs:
        prices = read_result(folder / one.folder).summary.cost.prices
        run = read_run(folder / one.folder)
        summary = summarize(run, definition=definition, slo=slo, prices=prices)
        point = load_point(one.name, summary, one.rate)
        if point is not None:
            yield point
