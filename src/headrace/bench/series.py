"""Runs that belong together, a sweep or a search: which folder holds which, and what came of it.

`series.json` is written anew after each run, so that it holds what there was when a client died.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import msgspec

from headrace.atomic_file import atomic_file
from headrace.bench.search_result import SearchResult
from headrace.errors import ConfigError, shown

SERIES, RUNS = "series.json", "runs"

_FORMAT = 1


class SeriesRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    rate: float | None
    """Offered rate; None in a closed loop."""
    folder: str
    """Within the series'."""
    users: int | None = None
    """Users of a closed loop, if known."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a sweep or search."""

    kind: Literal["sweep", "search"]
    runs: tuple[SeriesRun, ...]
    attainment: float
    """Share of requests that are to meet limits of each."""
    shown: str | None = None
    """Folder of the run that the report's tables are of; None: the series did not end."""
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


def forget_series(folder: Path) -> None:
    """That these runs belong together, not the runs."""
    (folder / SERIES).unlink(missing_ok=True)


def read_series(folder: Path) -> Series | None:
    """None where a folder has none. Raises ConfigError of one that this version cannot read."""
    path = folder / SERIES
    try:
        series = msgspec.json.decode(path.read_bytes(), type=Series)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{shown(str(path))} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
