"""What a run, a sweep or a search left on disk, whether or not it came to its end.

A folder may hold a whole run, the journal of one that was killed, or the runs of a series, with or
without the last of them. A reader is told what is missing in a sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.bench.cost import Prices
from headrace.bench.journal import FOLDER, is_journal
from headrace.bench.record import ClientHealth, RunMetadata, RunRecord
from headrace.bench.reply_journal import read_reply_journal
from headrace.bench.report.files import REQUESTS, RESULT, read_requests, read_result, read_run
from headrace.bench.series import SERIES, Series, read_series
from headrace.bench.slo import Slo, parse_slo
from headrace.bench.vllm_form import VllmForm
from headrace.errors import ConfigError, shown

PARTIAL = "partial"
"""In `about["ending"]` of a run whose client died."""


class SavedRun(NamedTuple):
    """A run read from its folder."""

    run: RunRecord
    slo: Slo | None
    """The SLO of the run."""
    prices: Prices
    partial: str = ""
    """What is missing; "" where nothing is."""
    series: Series | None = None
    series_folder: Path | None = None
    """Folder of `series`, if there is one."""
    vllm_keys: RunMetadata = {}  # noqa: RUF012 - never changed
    vllm_form: VllmForm = VllmForm()
    """With `vllm_keys`: as they were when it was made."""


def read_saved_run(path: Path) -> SavedRun:
    """Of a result.json, a requests.jsonl, or the folder of a run or a series.

    Raises ConfigError that says what was looked for, or which file is wrong.
    """
    if path.is_dir():
        return _of_folder(path)
    if path.name == REQUESTS:
        return _of_requests(path)
    kept = _whole(path)
    series = read_series(path.parent) if path.name == RESULT else None
    return kept._replace(series=series, series_folder=path.parent)


def _of_folder(folder: Path) -> SavedRun:
    if is_journal(folder):
        return _of_journal(folder)
    series = read_series(folder)
    if (folder / RESULT).exists():
        return _whole(folder)._replace(series=series, series_folder=folder)
    if series is not None:
        return _of_unfinished(folder, series)
    if (folder / REQUESTS).exists():
        return _of_requests(folder / REQUESTS)
    raise ConfigError(
        f"{shown(str(folder))} contains neither {RESULT} nor {SERIES} nor {FOLDER}/; name a "
        "folder that headrace bench load --save wrote"
    )


def _whole(path: Path) -> SavedRun:
    result = read_result(path)
    slo = parse_slo(result.slo) if result.slo else None
    return SavedRun(
        read_run(path),
        slo,
        result.summary.cost.prices,
        vllm_keys=result.vllm_keys,
        vllm_form=result.vllm_form,
    )


def _of_unfinished(folder: Path, series: Series) -> SavedRun:
    """A series that was killed: its last complete run, and what there is of the one after it."""
    left = sorted(one for one in folder.glob("*/*") if is_journal(one))
    lost = "; part of the next run is there, too" if left else ""
    told = f"The {series.kind} did not finish: it has {len(series.runs)} runs{lost}."
    if series.runs:
        kept = _whole(folder / series.runs[-1].folder)
    elif left:
        kept = _of_journal(left[-1])
        told += f" {kept.partial}"
    else:
        raise ConfigError(f"{shown(str(folder))}: no run of the {series.kind} has been saved")
    return kept._replace(partial=told, series=series, series_folder=folder)


def _of_journal(folder: Path) -> SavedRun:
    begun, records = read_reply_journal(folder)
    run = RunRecord(
        about={**begun.about, "ending": PARTIAL},
        requests=tuple(records),
        health=_UNKNOWN,
    )
    told = (
        f"The client did not finish: these are the {len(records)} requests that had ended by "
        "then. Requests in flight, the client's own figures and the server's /metrics are "
        "missing."
    )
    slo = parse_slo(begun.slo) if begun.slo else None
    prices = msgspec.convert(begun.prices, Prices)
    return SavedRun(run, slo, prices, told, vllm_keys=begun.vllm_keys, vllm_form=begun.vllm_form)


def _of_requests(path: Path) -> SavedRun:
    """Without the result beside it nobody knows what the run was."""
    if (path.parent / RESULT).exists():
        return read_saved_run(path.parent / RESULT)
    records = tuple(read_requests(path))
    run = RunRecord(about={"ending": PARTIAL}, requests=records, health=_UNKNOWN)
    told = (
        f"{RESULT} is not beside {REQUESTS}: these are {len(records)} requests, without the "
        "settings of the run and the client's own figures."
    )
    return SavedRun(run, None, Prices(), told)


_UNKNOWN = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=())
