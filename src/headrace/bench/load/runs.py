"""The runs of a sweep or a search, one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.load_options import LoadOptions
from headrace.bench.load.save import SaveOptions, save_run
from headrace.bench.load_point import LoadPoint, load_point
from headrace.bench.search_result import SearchResult
from headrace.bench.series import RUNS, Series, SeriesRun, forget_runs, write_series
from headrace.errors import HeadraceError

ReportRun = Callable[[str, RunResult], None]
"""Called with the name of each run once it has ended."""


def no_report(_name: str, _done: RunResult) -> None:
    """For who waits for the end."""


class Runs:
    """A sequence of loads: runs one after another, reports each, and keeps them.

    Where a folder was named, each run's files are in one of its own below it as soon as the run has
    ended, and `series.json` lists them. attainment: as `Series` has it.
    """

    def __init__(
        self,
        kind: Literal["sweep", "search"],
        experiment: Experiment,
        *,
        attainment: float,
        save: SaveOptions | None = None,
        told: ReportRun = no_report,
    ) -> None:
        self.done: list[RunResult] = []
        self.curve: list[LoadPoint] = []
        self._kind: Literal["sweep", "search"] = kind
        self._experiment = experiment
        self._attainment = attainment
        self._save = save
        self._told = told
        self._entries: list[SeriesRun] = []
        if save is not None:
            forget_runs(save.folder)

    def run(self, name: str, options: LoadOptions) -> RunResult:
        """One more. Raises HeadraceError where its files cannot be written."""
        within = f"{RUNS}/{len(self.done) + 1:02}"
        save = self._save
        if save is not None:
            save = msgspec.structs.replace(save, folder=save.folder / within)
        if save is None:
            done = self._experiment.run(options)
        else:
            done = self._experiment.run(options, save.folder, save.vllm_form)
        self.done.append(done)
        users = options.users if options.rate is None else None
        point = load_point(name, done.summary, options.rate, users=users)
        if point is not None:
            self.curve.append(point)
        if save is not None:
            save_run(done, self._experiment, save)
            entry = SeriesRun(name=name, rate=options.rate, users=users, folder=within)
            self._entries.append(entry)
            self._write()
        self._told(name, done)
        return done

    def ended(self, shown: RunResult, search: SearchResult | None = None) -> None:
        """The series is complete; the report's tables are of the run `shown`."""
        if self._entries:
            place = next(at for at, one in enumerate(self.done) if one is shown)
            self._write(self._entries[place].folder, search)

    def go_on(self) -> bool:
        """Whether nobody pressed Ctrl-C, and the last run had an answer."""
        last = self.done[-1] if self.done else None
        return last is None or (
            last.ending != "interrupted" and last.summary.requests.completed > 0
        )

    def _write(self, shown: str | None = None, search: SearchResult | None = None) -> None:
        assert self._save is not None
        series = Series(
            kind=self._kind,
            runs=tuple(self._entries),
            attainment=self._attainment,
            shown=shown,
            search=search,
        )
        try:
            write_series(self._save.folder, series)
        except OSError as error:
            raise HeadraceError(f"--save {self._save.folder}: {error.strerror}") from error
