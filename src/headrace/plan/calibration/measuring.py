"""The grid of engine tests that a calibration is fitted to, how long it takes, and its run.

Who runs a test is handed in: `headrace bench engine` measures, this decides what and keeps it. A
file holds what is done after every test, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.plan.calibration.measurements import (
    EngineTest,
    MeasurementSet,
    Row,
    read_measured,
    steps_of,
    write_measured,
)
from headrace.plan.step.measured_steps import MeasuredSteps
from headrace.plan.step.step import StepCounter
from headrace.plan.step.step_rates import StepRates
from headrace.telemetry.work import Work

# Prompts from a few rows of a product to chunks that attend to eight thousand tokens.
_PROMPTS = (32, 128, 512, 2048, 8192)
LONGEST_TOKENS = 8192
_NEW = 32
_BATCHES = (1, 2, 4, 8, 16, 32)
# Batch and context together up to what a quarter of a small machine's memory holds.
_DEEP = ((1, 2048), (4, 2048), (8, 2048), (32, 512), (2, 4096), (1, 8192))
_TOGETHER = ((128, 64, 8), (128, 64, 32))
# Longer tests are run without a warm-up, since what is cold in them is little, and less often.
_LONG_TOKENS = 1024
_LONG_REPEATS = 2
_LONGEST_TOKENS = 4096


class PlannedTest(NamedTuple):
    """A test and how it is run. warm_up: before each run one that is not counted."""

    test: EngineTest
    repeats: int
    warm_up: bool


Run = Callable[[EngineTest, bool, int], float]
"""A test, whether to run it once before without a clock, and its number among the runs of that test
from 0: each has to have prompts of its own. Gives tokens/s of all its requests together."""


def grid(
    repeats: int = 3, *, longest: int = LONGEST_TOKENS, most_positions: int = 1 << 30
) -> tuple[PlannedTest, ...]:
    """Short tests first, so that the engine is warm when long ones come.

    Left out are tests with longer prompts or contexts than `longest`, and those beyond
    most_positions, that the model was made for.
    """
    tests = [EngineTest(prompt, 0, 1, 0) for prompt in _PROMPTS]
    tests += [EngineTest(0, _NEW, batch, 0) for batch in _BATCHES]
    tests += [EngineTest(0, _NEW, batch, depth) for batch, depth in _DEEP]
    tests += [EngineTest(*each, 0) for each in _TOGETHER]
    tests.sort(key=lambda one: one.batch * (one.positions - 1))
    return tuple(
        PlannedTest(
            one,
            _repeats_of(one, repeats),
            one.tokens < _LONG_TOKENS,
        )
        for one in tests
        if one.positions <= most_positions and max(one.prompt, one.depth) <= longest
    )


def _repeats_of(test: EngineTest, repeats: int) -> int:
    if test.tokens >= _LONGEST_TOKENS:
        return 1
    return min(repeats, _LONG_REPEATS) if test.tokens >= _LONG_TOKENS else repeats


def seconds_of(
    planned: Iterable[PlannedTest], counter: StepCounter, step_tokens: int, rates: Work | StepRates
) -> float:
    """About how long the tests take. rates: bytes/s and operations/s, or those of a calibration.

    What is in the cache before is computed once for tests that only decode, as those have the same
    prompts every time.
    """
    total = 0.0
    deepest: dict[int, int] = {}
    for one in planned:
        runs = one.repeats * (1 + one.warm_up)
        total += runs * _test_s(one.test, counter, step_tokens, rates)
        test = one.test
        if test.depth and test.batch > deepest.get(test.depth, 0):
            fresh = test.batch - deepest.get(test.depth, 0)
            deepest[test.depth] = test.batch
            filled = EngineTest(test.depth, 0, fresh, 0)
            total += _test_s(filled, counter, step_tokens, rates)
    return total


def _test_s(
    test: EngineTest, counter: StepCounter, step_tokens: int, rates: Work | StepRates
) -> float:
    total = 0.0
    for steps in steps_of(counter, test, step_tokens):
        if isinstance(rates, StepRates):
            seconds = rates.time(steps.work).seconds
        else:
            work = steps.work.work
            seconds = work.bytes / rates.bytes + work.operations / rates.operations
        total += steps.count * seconds
    return total


class Book:
    """The file of all measurements: what is done, and where each row goes as it comes."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a file that is none of ours."""
        self._path = path
        self._sets = list(read_measured(path)) if path.exists() else []

    @property
    def sets(self) -> tuple[MeasurementSet, ...]:
        return tuple(self._sets)

    def done(self, model: MeasurementSet) -> tuple[Row, ...]:
        """Rows of the model in this very setting."""
        return self._kept(model).rows

    def draft_steps(self, model: MeasurementSet) -> MeasuredSteps | None:
        """Its steps with drafts, if they were measured in this very setting."""
        return self._kept(model).draft_steps

    def add(self, model: MeasurementSet, row: Row, now: datetime) -> None:
        """Keep a row of the model, in the place of an earlier one of that test.

        Raises OSError where the file cannot be written.
        """
        rows = {one.test: one for one in self.done(model)}
        rows[row.test] = row
        at = now.isoformat(timespec="seconds")
        self._write(
            msgspec.structs.replace(self._kept(model), rows=tuple(rows.values()), measured_at=at)
        )

    def add_draft_steps(self, model: MeasurementSet, steps: MeasuredSteps) -> None:
        """Keep steps with drafts of the model, in the place of earlier ones; OSError as `add`."""
        self._write(msgspec.structs.replace(self._kept(model), draft_steps=steps))

    def forget(self, model: MeasurementSet) -> None:
        """Its rows; the file keeps them until one is added."""
        self._sets = [one for one in self._sets if not _same(one, model)]

    def beside(self, model: MeasurementSet) -> tuple[MeasurementSet, ...]:
        """All models that the file has in the setting of this one."""
        return tuple(one for one in self._sets if one.setting == model.setting)

    def _kept(self, model: MeasurementSet) -> MeasurementSet:
        """What the file has of it; the set without rows that it is where it has nothing."""
        return next((kept for kept in self._sets if _same(kept, model)), model)

    def _write(self, whole: MeasurementSet) -> None:
        self._sets = [*(kept for kept in self._sets if not _same(kept, whole)), whole]
        write_measured(self._path, self._sets)


def _same(one: MeasurementSet, other: MeasurementSet) -> bool:
    return (one.model, one.kind, one.weight_bytes, one.step_tokens, one.setting) == (
        other.model, other.kind, other.weight_bytes, other.step_tokens, other.setting,
    )  # fmt: skip


def left_of(
    book: Book, model: MeasurementSet, planned: Iterable[PlannedTest]
) -> tuple[PlannedTest, ...]:
    """What `book` does not have of `model`: tests, each with the runs that are wanted still."""
    done = {row.test: row for row in book.done(model)}
    found = []
    for one in planned:
        row = done.get(one.test)
        if row is None or row.repeats < one.repeats:
            kept = 0 if row is None else len(row.runs_tokens_per_s)
            found.append(one._replace(repeats=one.repeats - kept))
    return tuple(found)


def measure(
    book: Book,
    model: MeasurementSet,
    counter: StepCounter,
    planned: Iterable[PlannedTest],
    run: Run,
    *,
    now: Callable[[], datetime],
    on_run: Callable[[EngineTest], None] | None = None,
) -> None:
    """Run what `book` does not have of `model`, a set without rows, and keep each as it comes.

    Tests are run in rounds, every one once before any is repeated: a slow minute of the machine
    then spoils one run of several tests, which a median leaves out, and not all runs of one.
    on_run: called before each.
    """
    left = left_of(book, model, planned)
    for number in range(max((one.repeats for one in left), default=0)):
        for one in left:
            if number >= one.repeats:
                continue
            if on_run is not None:
                on_run(one.test)
            row = next((row for row in book.done(model) if row.test == one.test), None)
            before = () if row is None else row.runs_tokens_per_s
            runs = (*before, run(one.test, one.warm_up, len(before)))
            book.add(model, _row(one.test, runs, counter, model.step_tokens), now())


def _row(test: EngineTest, runs: tuple[float, ...], counter: StepCounter, step_tokens: int) -> Row:
    return Row(
        prompt=test.prompt,
        new=test.new,
        batch=test.batch,
        depth=test.depth,
        tokens_per_s=statistics.median(runs),
        least_tokens_per_s=min(runs),
        most_tokens_per_s=max(runs),
        repeats=len(runs),
        steps=steps_of(counter, test, step_tokens),
        runs_tokens_per_s=runs,
    )
