"""Engines and a progress bar for `headrace plan calibrate --measure`."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from headrace.cli.counting import counting
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.bench.draft_steps import WrongDrafts
    from headrace.bench.engine import Case
    from headrace.engine.core import EngineCore
    from headrace.plan.calibration.measurements import EngineTest, MeasurementSet
    from headrace.plan.calibration.measuring import Book, PlannedTest
    from headrace.plan.step.measured_steps import MeasuredSteps
    from headrace.plan.step.step_rates import StepRates
    from headrace.telemetry.work import Work

_BATCHES = (1, 2, 4, 8, 16, 32)
_DRAFTS = (0, 1, 2, 3, 5, 8, 15)
_MOST_TOKENS = 160
"""Of a step: it has no more places with logits for drafts than 128."""
_CONTEXT = 128
_ROUNDS = 12
_PASS_TOKENS = 320
"""Of a request whose draft's passes are timed, beyond its prompt."""


def measure_models(
    models: Sequence[str],
    path: Path,
    *,
    fresh: bool,
    repeats: int,
    longest: int,
    threads: int | None,
    cpu_level: str,
    draft: str | None = None,
) -> tuple[MeasurementSet, ...]:
    """Measure each in turn, keep rows in the file as they come, and give what it then has of this
    setting, earlier models too.

    fresh: measure again what the file has of them. longest: prompt or context. draft: a draft model
    or head whose passes are measured beside each. Raises ConfigError for a model that cannot be
    measured.
    """
    from headrace.plan.calibration.measuring import Book

    book = Book(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--measurements {path}: {error.strerror}") from error
    found: tuple[MeasurementSet, ...] = ()
    for number, model in enumerate(models, 1):
        click.echo(f"{model} ({number} of {len(models)})", err=True)
        measured = _measure(model, book, fresh, repeats, longest, threads, cpu_level)
        if draft is not None:
            _measure_draft(model, draft, book, measured, fresh)
        found = book.beside(measured)
    return found


def _measure(
    name: str,
    book: Book,
    fresh: bool,
    repeats: int,
    longest: int,
    threads: int | None,
    cpu_level: str,
) -> MeasurementSet:
    from headrace.bench.draft_steps import WrongDrafts
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.engine.load import load_engine
    from headrace.plan.calibration.engine_rows import counter_of, measured_of
    from headrace.plan.calibration.measurements import MachineId
    from headrace.plan.calibration.measuring import grid, left_of, measure, seconds_of
    from headrace.plan.model.model_shape import shape_of_checkpoint
    from headrace.telemetry.machine import this_machine
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=name))
    shape = shape_of_checkpoint(resolve_model(config.model))
    most_positions = shape.context_tokens or 1 << 30
    planned = grid(repeats, longest=longest, most_positions=most_positions)
    if not planned:
        raise ConfigError(
            f"{name} was made for {shape.context_tokens} tokens, fewer than any test has"
        )
    most_requests = max(one.test.batch for one in planned)
    config = msgspec.structs.replace(
        config,
        threads=threads,
        cpu_level=cpu_level,
        max_model_len=max(
            *(each.test.positions for each in planned),
            *(case.positions for case in _drafted().values() if case.positions <= most_positions),
        ),
        max_num_seqs=most_requests + 1,
        max_num_batched_tokens=max(config.max_num_batched_tokens, most_requests),
        max_step_ms=0,  # the fit counts steps of all these tokens
        speculative_config="none",
    )
    drafts = WrongDrafts()
    core, _ = load_engine(config, proposers=[drafts])
    info = core.info()
    planned = _that_fit(core, planned)
    counter = counter_of(shape, info.kv_cache_dtype)
    model = measured_of(
        shape,
        machine=MachineId(*this_machine()),
        cpu_level=info.cpu_level,
        threads=info.num_threads,
        kv_type=info.kv_cache_dtype,
        step_tokens=config.max_num_batched_tokens,
        measured_at="",
        rows=(),
    )
    if fresh:
        book.forget(model)
    left = left_of(book, model, planned)
    done = len(planned) - len(left)
    seconds = seconds_of(left, counter, model.step_tokens, _guess(model, core))
    kept = f", {done} are kept" if done else ""
    click.echo(
        f"{len(left)} tests, about {math.ceil(seconds / 60)} min{kept}; keep the machine "
        "otherwise idle",
        err=True,
    )
    with counting("measuring") as progress:
        begun, runs = 0, sum(one.repeats for one in left)

        def on_run(_test: EngineTest) -> None:
            nonlocal begun
            progress(begun, runs)
            begun += 1

        def run(test: EngineTest, warm_up: bool, number: int) -> float:
            return _run(core, test, warm_up, number)

        measure(book, model, counter, planned, run, now=lambda: datetime.now(UTC), on_run=on_run)
    if book.draft_steps(model) is None:
        steps = _draft_steps(core, drafts, most_positions)
        if steps is not None:
            book.add_draft_steps(model, steps)
    return model


def _draft_steps(
    core: EngineCore, drafts: WrongDrafts, most_positions: int
) -> MeasuredSteps | None:
    """Steps of each number of requests that the KV cache holds; None where the model was made for
    fewer tokens than that takes."""
    from headrace.bench.draft_steps import FIRST_TURNS, time_steps
    from headrace.bench.engine import check_fits
    from headrace.plan.step.measured_steps import MeasuredSteps, StepSize

    found: list[StepSize] = []
    for batch, case in _drafted().items():
        sizes = [count for count in _DRAFTS if batch * (1 + count) <= _MOST_TOKENS]
        try:
            if case.positions > most_positions:
                raise ConfigError(f"the model was made for {most_positions} tokens")
            check_fits(core, case)
        except ConfigError as error:
            click.echo(f"drafts of {batch} requests and more are skipped: {error}", err=True)
            break
        steps = len(sizes) * (_ROUNDS + FIRST_TURNS)
        click.echo(f"{steps} steps of {batch} requests with drafts", err=True)
        timed = time_steps(core, drafts, batch=batch, sizes=sizes, context=_CONTEXT, rounds=_ROUNDS)
        found += [
            StepSize(batch, batch * (1 + count), statistics.median(seconds))
            for count, seconds in timed.items()
        ]
    if not found:
        return None
    return MeasuredSteps(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        context_tokens=_CONTEXT,
        steps=tuple(found),
    )


def _drafted() -> dict[int, Case]:
    """The requests of steps with drafts, by their number."""
    from headrace.bench.draft_steps import case_of

    return {batch: case_of(batch, _DRAFTS, _CONTEXT, _ROUNDS) for batch in _BATCHES}


def _measure_draft(name: str, draft: str, book: Book, model: MeasurementSet, fresh: bool) -> None:
    """Keep passes of a draft beside the model, whose steps with drafts the file has."""
    import json

    from headrace.bench.draft_steps import DRAFTS_OF_PASSES, time_passes
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.engine.load import load_engine
    from headrace.plan.step.measured_steps import DraftPasses, PassSize

    steps = book.draft_steps(model)
    if steps is None:
        raise ConfigError(f"--draft-model: no steps with drafts of {name} could be measured")
    label = Path(draft).name
    if not fresh and any(known.draft == label for known in steps.drafts):
        return
    click.echo(f"passes of the draft {label}", err=True)
    settings = {
        "model": draft, "adaptive": False, "num_speculative_tokens": DRAFTS_OF_PASSES,
    }  # fmt: skip
    config, _ = obtain(EngineConfig(model=name))
    config = msgspec.structs.replace(
        config,
        threads=model.threads,
        cpu_level=model.cpu_level,
        max_model_len=_CONTEXT + _PASS_TOKENS,
        max_num_seqs=steps.batches[-1] + 1,
        speculative_config=json.dumps(settings),
    )
    core, _ = load_engine(config)
    passes = []
    for batch in steps.batches:
        seconds = time_passes(core, batch=batch, context=_CONTEXT, rounds=_ROUNDS)
        if seconds:
            passes.append(PassSize(batch, statistics.median(seconds)))
    if not passes:
        raise ConfigError(
            f"--draft-model {draft} makes a block of drafts in one pass, or none beside {name}: "
            "only drafts that are made one after another are timed"
        )
    book.add_draft_steps(model, steps.with_draft(DraftPasses(draft=label, passes=tuple(passes))))


def _run(core: EngineCore, test: EngineTest, warm_up: bool, number: int) -> float:
    from headrace.bench.engine import Case, run_case

    # Each call makes two runs at most.
    case, first = Case(*test), 2 * number
    return run_case(core, case, repeats=1, warm_up=warm_up, first=first).tokens_per_s


def _that_fit(core: EngineCore, planned: Sequence[PlannedTest]) -> tuple[PlannedTest, ...]:
    """Without the tests that the KV cache cannot hold, which are told."""
    from headrace.bench.engine import Case, check_fits

    kept = []
    for one in planned:
        try:
            check_fits(core, Case(*one.test))
        except ConfigError:
            click.echo(f"{one.test.name} is skipped: the KV cache cannot hold it", err=True)
            continue
        kept.append(one)
    return tuple(kept)


def _guess(model: MeasurementSet, core: EngineCore) -> Work | StepRates:
    """Rates to tell the time by: of the stored calibration, or half of the machine's limits."""
    from headrace.plan.calibration.stored import stored_calibration
    from headrace.telemetry.work import Work

    found = stored_calibration(os.environ, datetime.now(UTC)).calibration
    if found is not None and model.kind in found.rates:
        return found.rates[model.kind]
    info = core.info()
    read, compute = info.read_limit_bytes_per_s, info.compute_limit_ops_per_s
    if read is None or compute is None:
        # About what a core of a laptop does.
        return Work(20e9 * info.num_threads, 200e9 * info.num_threads)
    return Work(read / 2, compute / 2)
