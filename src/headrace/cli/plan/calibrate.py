"""`headrace plan calibrate`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.plan.options import catalog_of
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.plan.calibration.errors import CheckedRow
    from headrace.plan.calibration.measurements import MeasurementSet
    from headrace.plan.calibration.recorded_steps import RecordedSteps
    from headrace.plan.calibration.stored import Calibration
    from headrace.plan.model.model_shape import ModelShape
    from headrace.plan.run_file import Run

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(short_help="Fit plans of this machine to what was measured.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--measure",
    "do_measure",
    is_flag=True,
    help="Measure each MODEL in the engine on this machine first; prints how long this takes "
    "before it begins.",
)
@click.option(
    "--from",
    "sources",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Fit to existing results: of `bench engine --json`, of --measurements, or a folder that "
    "`bench load --save` wrote; or add a recording of steps with drafts. [may be repeated]",
)
@click.option(
    "--check",
    "checks",
    type=_FILE,
    multiple=True,
    help="Predict these results and print the errors; they are not used in the fit. [may be "
    "repeated]",
)
@click.option(
    "--model", "lines_of", help="Model of results that do not name their model, or name it wrongly."
)
@click.option(
    "--measurements",
    type=_FILE,
    help="File that keeps measured tests; tests in it are not measured again. [default: "
    "calibration/measured.json beside what `bench machine` stored]",
)
@click.option("--fresh", is_flag=True, help="Measure again the tests that the file has.")
@click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Timed runs of each test; at most two of long tests.",
)
@click.option(
    "--longest",
    type=click.IntRange(min=32),
    default=8192,
    show_default=True,
    help="Longest prompt or context to measure; long ones take most of the time.",
)
@click.option(
    "--draft-model",
    help="Also measure the passes of this draft model or head beside each MODEL of --measure.",
)
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option("--cpu-level", default="auto", help="Dispatch level. [default: the best]")
@click.option(
    "--no-store",
    is_flag=True,
    help="Only print; plans keep using the calibration that is already stored.",
)
@click.option("--rows", "every_row", is_flag=True, help="Print every test, not only the worst.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON with rates, errors and every test."
)
def calibrate(models: tuple[str, ...], **options: Any) -> None:
    """Fit the predicted speed of plans to measurements, and report the remaining errors.

    With --measure each MODEL is measured over prompts, contexts up to 8,192 tokens and batches up
    to 32, which takes some minutes per model; keep the machine otherwise idle. An interrupted run
    continues where it was. The result is stored for this machine, and `headrace plan speed` and
    `plan cost` of `--hardware this` use it from then on. Without options the stored calibration is
    shown.

    \b
    headrace plan calibrate --measure q8.gguf q4.gguf
    headrace bench engine q8.gguf -b 1,8,32 --json > q8.json
    headrace plan calibrate --from q8.json
    headrace plan calibrate --from one-user/ --from eight-users/
    headrace plan calibrate --check other-model.json
    """
    from headrace.plan.calibration.errors import checked
    from headrace.plan.calibration.reading import read_engine_results
    from headrace.plan.calibration.stored import calibrate as fit
    from headrace.plan.calibration.stored import store_calibration, stored_calibration

    if models and not options["do_measure"]:
        raise ConfigError(f"MODEL {models[0]!r} is not used: add --measure to measure it")
    if options["do_measure"] and not models:
        raise ConfigError("--measure needs a MODEL, such as a GGUF file")
    for one in options["checks"]:
        if one in options["sources"]:
            raise ConfigError(
                f"--check {one}: --from names the same results; check a fit against other results"
            )
    if options["draft_model"] and not models:
        raise ConfigError("--draft-model is measured beside a MODEL: add --measure MODEL")
    shape_of = _shapes()
    runs, recorded, files = _by_kind(options["sources"])
    sets: tuple[MeasurementSet, ...] = read_engine_results(files, shape_of, options["lines_of"])
    others = read_engine_results(options["checks"], shape_of, options["lines_of"])
    if models:
        sets += _measured(models, options)
    note = ""
    if sets:
        calibration = fit(sets)
    else:
        found = stored_calibration(os.environ, datetime.now(UTC))
        if found.calibration is None:
            raise ConfigError(
                found.note
                or "there is no calibration of this machine: measure a model with `headrace "
                "plan calibrate --measure MODEL`, or name results with --from"
            )
        calibration, note = found.calibration, f"as stored in {found.path}"
    if runs:
        from headrace.plan.calibration.runs import with_runs

        calibration, note = with_runs(calibration, runs, options["lines_of"]), ""
    if recorded:
        from headrace.plan.calibration.recorded_steps import with_recorded

        calibration, note = with_recorded(calibration, recorded, options["lines_of"]), ""
    if (sets or runs or recorded) and not options["no_store"]:
        note = (
            f"not stored: its mean error is {calibration.error.mean:.0%}"
            if calibration.is_poor
            else f"stored in {store_calibration(calibration, os.environ)}"
        )
    rows = checked(calibration.rates, others) if others else ()
    _print(calibration, rows, note, options)


def _by_kind(
    sources: tuple[Path, ...],
) -> tuple[tuple[Run, ...], tuple[RecordedSteps, ...], tuple[Path, ...]]:
    """Runs of `bench load` and recordings of steps with drafts, read, and all else."""
    from headrace.plan.calibration.recorded_steps import is_recording, read_recorded
    from headrace.plan.calibration.runs import read_runs
    from headrace.plan.run_file import is_run

    named = tuple(one for one in sources if one.is_dir() or is_run(one))
    others = [path for path in sources if path not in named]
    steps = [path for path in others if is_recording(path)]
    return (
        read_runs(named),
        tuple(read_recorded(path) for path in steps),
        tuple(path for path in others if path not in steps),
    )


def _shapes() -> Any:
    """Shapes of MODEL arguments; the catalog is loaded when the first is asked for."""
    from functools import cache

    @cache
    def shape_of(model: str) -> ModelShape:
        from headrace.plan.model.find_model import shape_named

        return shape_named(catalog_of(()), model, os.environ)

    return shape_of


def _measured(models: tuple[str, ...], options: dict[str, Any]) -> tuple[MeasurementSet, ...]:
    from headrace.cli.plan.calibrate_measure import measure_models
    from headrace.plan.calibration.stored import measurements_path

    return measure_models(
        models,
        options["measurements"] or measurements_path(os.environ),
        fresh=options["fresh"],
        repeats=options["repeats"],
        longest=options["longest"],
        threads=options["threads"],
        cpu_level=options["cpu_level"],
        draft=options["draft_model"],
    )


def _print(
    calibration: Calibration, rows: tuple[CheckedRow, ...], note: str, options: dict[str, Any]
) -> None:
    if options["as_json"]:
        import msgspec

        from headrace.plan.calibration.errors import spread

        whole = msgspec.to_builtins(calibration)
        whole["checked"] = msgspec.to_builtins(rows)
        whole["checked_error"] = msgspec.to_builtins(spread(row.error for row in rows))
        click.echo(msgspec.json.encode(whole))
        click.echo(note, err=True)
        return
    from headrace.cli.plan.tables.calibrate import print_calibration, print_checked

    print_calibration(calibration, every_row=options["every_row"])
    if rows:
        print_checked(rows)
    if note:
        click.echo(note)
