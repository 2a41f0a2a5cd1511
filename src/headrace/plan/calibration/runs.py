"""Results of `headrace bench load` put beside what is calibrated: each model as it is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import MachineId
from headrace.plan.calibration.served import fit_served
from headrace.plan.calibration.stored import Calibration, ModelFit
from headrace.plan.run_file import Run, read_run


def read_runs(paths: Sequence[Path]) -> tuple[Run, ...]:
    """Folders that `headrace bench load --save` wrote; raises ConfigError."""
    return tuple(read_run(path, with_chunks=True) for path in paths)


def with_runs(
    calibration: Calibration, runs: Sequence[Run], model: str | None = None
) -> Calibration:
    """The same with `served` of the models that the runs are of.

    model: the calibrated model that all of them are of; None: each by the name it was served as.
    Raises ConfigError for a run of another machine or of a model that is not calibrated, and as
    fit_served does.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        _check_machine(run, calibration.machine)
        name = model if model is not None else str(run.about.get("model", ""))
        groups.setdefault(calibrated_name(calibration, run.where, name), []).append(run)
    models = tuple(
        one if one.model not in groups else _served(one, groups[one.model])
        for one in calibration.models
    )
    return msgspec.structs.replace(calibration, models=models)


def _served(one: ModelFit, runs: Sequence[Run]) -> ModelFit:
    return msgspec.structs.replace(one, served=fit_served(runs, one.latency))


def calibrated_name(calibration: Calibration, where: str, name: str) -> str:
    """The calibrated model that a result in `where` calls so; raises ConfigError for none."""
    known = [one.model for one in calibration.models]
    alike = [one for one in known if _letters(one) == _letters(name)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise ConfigError(
            f"{where}: {name} is calibrated with several kinds of weights, and the result "
            "does not record which it is of; calibrate only that one"
        )
    raise ConfigError(
        f"{where}: is of {name or 'a model without a name'}, which is not calibrated; "
        f"calibrated are {', '.join(dict.fromkeys(known))}: name one of them with --model, or "
        "measure this one with `headrace plan calibrate --measure MODEL`"
    )


def _letters(name: str) -> str:
    """Servers write names with hyphens that files write with blanks."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _check_machine(run: Run, machine: MachineId) -> None:
    """The client's, which for a server on another one differs; then steps are that one's."""
    about = run.about
    seen = (
        about.get("client_cpu"), about.get("client_cpus"), about.get("client_memory_bytes"),
    )  # fmt: skip
    if seen != (machine.cpu, machine.cpus, machine.memory_bytes):
        raise ConfigError(
            f"{run.where}: was measured from {seen[0]} with {seen[1]} CPUs, the calibration is of "
            f"{machine.cpu} with {machine.cpus}: send the load from the machine that serves"
        )
