"""A calibration as it is kept: one file for each machine and runtime, in the user's cache folder.

It lies beside what `headrace bench machine` found (telemetry/machine.py), under
`headrace/calibration`. A calibration of another machine, of another version of headrace, or one
that is old is not planned with: kernels and hosts change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace import __version__
from headrace.atomic_file import atomic_file
from headrace.errors import ConfigError
from headrace.plan.calibration.errors import CheckedRow, Spread, self_checked, spread
from headrace.plan.calibration.fitting import fit, observed
from headrace.plan.calibration.latency_fit import fit_latency
from headrace.plan.calibration.measurements import MachineId, MeasurementSet, joined
from headrace.plan.calibration.served import ServedFit
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.step.measured_steps import MeasuredSteps
from headrace.plan.step.step_rates import StepRates
from headrace.telemetry.machine import DEVICE, machine_path, this_machine

FORMAT = 1
RUNTIME = "headrace"
STALE_AFTER = timedelta(days=180)
# Twice what the rates leave on a quiet machine.
_POOR = 0.15


class ModelFit(msgspec.Struct, frozen=True, kw_only=True):
    """One model as measured, and the latency model fitted to it alone."""

    model: str
    kind: str
    parameters: int
    weight_bytes: int
    measured_at: str
    latency: LatencyModel | None
    """None if too few tests were measured."""
    errors: Spread | None
    """Errors of `latency` in seconds."""
    served: ServedFit | None = None
    """The same as clients of a server saw it, where runs of `headrace bench load` were named."""
    draft_steps: MeasuredSteps | None = None
    """What drafts cost; None where it was not measured."""

    @property
    def planned(self) -> LatencyModel | None:
        """What a service is planned with: as it was served, or else the engine alone."""
        return self.latency if self.served is None else self.served.latency


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration as stored for a machine."""

    headrace_calibration: int
    machine: MachineId
    runtime: str
    version: str
    cpu_level: str
    threads: int
    kv_type: str
    measured_at: str
    rates: dict[str, StepRates]
    """Rates by kind of weights."""
    error: Spread
    """Error on the tests it was fitted to."""
    left_out: Spread | None
    """Error on each test by a fit without it."""
    other_model: Spread | None
    """Error on each model by a fit without it; None if there is only one."""
    models: tuple[ModelFit, ...]
    rows: tuple[CheckedRow, ...]

    @property
    def day(self) -> str:
        return self.measured_at[:10]

    @property
    def is_poor(self) -> bool:
        """Whether the rates do not explain what was measured, as where something else ran."""
        return self.error.mean > _POOR

    def band(self, model: str, parameters: int) -> float:
        """By what share a prediction may well be off: nine of ten tests were nearer.

        Of a model that was measured by fits without the test, of another by fits without the model;
        where but one model was measured nothing says how rates carry over, so twice the former.
        """
        known = self.left_out or self.error
        if any((one.model, one.parameters) == (model, parameters) for one in self.models):
            return known.tail
        return 2 * known.tail if self.other_model is None else self.other_model.tail


class Found(NamedTuple):
    """A calibration and its file; or why there is none to plan with, "" where none was made."""

    calibration: Calibration | None
    path: Path
    note: str = ""


def calibrate(sets: Sequence[MeasurementSet]) -> Calibration:
    """Fit rates and latency models to measurements of one setting.

    Raises ConfigError for none, and for measurements that differ in machine, runtime, level,
    threads or type of keys and values: those have rates of their own.
    """
    sets = joined(sets)
    check_one_setting(sets)
    found = fit(observed(sets))
    rows = self_checked(sets, found)
    error = spread(row.error for row in rows)
    assert error is not None, "fit refuses no rows"
    first = sets[0]
    return Calibration(
        headrace_calibration=FORMAT,
        machine=first.machine,
        runtime=first.runtime,
        version=first.version,
        cpu_level=first.cpu_level,
        threads=first.threads,
        kv_type=first.kv_type,
        measured_at=max(one.measured_at for one in sets),
        rates=found.rates,
        error=error,
        left_out=spread(row.left_out_error for row in rows),
        other_model=spread(row.other_model_error for row in rows),
        models=tuple(_model_fit(one) for one in sets),
        rows=rows,
    )


def check_one_setting(sets: Sequence[MeasurementSet]) -> None:
    """Raise ConfigError where measurements cannot be fitted together, naming what differs."""
    if not any(one.rows for one in sets):
        raise ConfigError(
            "there is nothing to fit: measure (`headrace plan calibrate --measure MODEL`) or name "
            "results with --from"
        )
    for field in ("machine", "runtime", "version", "cpu_level", "threads", "kv_type"):
        values = list(dict.fromkeys(getattr(one, field) for one in sets))
        if len(values) > 1:
            shown = ", ".join(one.cpu if isinstance(one, MachineId) else str(one) for one in values)
            raise ConfigError(
                f"measurements differ in {field}: {shown}; rates depend on it: keep one of "
                "them, or measure again"
            )


def _model_fit(one: MeasurementSet) -> ModelFit:
    found = fit_latency(one)
    return ModelFit(
        model=one.model,
        kind=one.kind,
        parameters=one.parameters,
        weight_bytes=one.weight_bytes,
        measured_at=one.measured_at,
        latency=None if found is None else found.model,
        errors=None if found is None else spread(found.errors),
        draft_steps=one.draft_steps,
    )


def calibration_path(
    environ: Mapping[str, str], machine: MachineId | None = None, device: str = ""
) -> Path:
    """The file of this machine, or of `machine`: several may share a home. device: the name of a
    device in it, which has a file of its own; "" for the kernels."""
    one = MachineId(*this_machine()) if machine is None else machine
    digest = hashlib.sha256(msgspec.json.encode(one) + device.encode()).hexdigest()[:12]
    return machine_path(environ).parent / "calibration" / f"{RUNTIME}-{digest}.json"


def measurements_path(environ: Mapping[str, str]) -> Path:
    """Where measured tests of this user are kept, of whichever machine."""
    return machine_path(environ).parent / "calibration" / "measured.json"


def store_calibration(calibration: Calibration, environ: Mapping[str, str]) -> Path:
    """Write it for this user, whole or not at all.

    Raises ConfigError for one of another machine or runtime, and where it cannot be written.
    """
    if calibration.machine != MachineId(*this_machine()):
        raise ConfigError(
            f"measured on {calibration.machine.cpu}, {calibration.machine.cpus} CPUs; plans "
            "of this machine cannot use it: look at the fit with --no-store"
        )
    level = calibration.cpu_level
    device = level.removeprefix(DEVICE) if level.startswith(DEVICE) else ""
    path = calibration_path(environ, device=device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(calibration)) + b"\n")
    except OSError as error:
        raise ConfigError(
            f"the calibration cannot be stored in {path}: {error.strerror}; set XDG_CACHE_HOME to "
            "a folder you may write to, or use --no-store"
        ) from error
    return path


def stored_calibration(environ: Mapping[str, str], now: datetime, device: str = "") -> Found:
    """The calibration of this machine, or of the device of this name in it, that may be planned
    with."""
    path = calibration_path(environ, device=device)
    again = "run `headrace plan calibrate --measure MODEL...` again"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except FileNotFoundError:
        return Found(None, path)
    except (OSError, msgspec.MsgspecError, ConfigError) as error:
        return Found(None, path, f"the calibration {path} is not used: {error}; {again}")
    reason = ""
    if found.headrace_calibration != FORMAT:
        reason = f"its format is {found.headrace_calibration}, this version reads {FORMAT}"
    elif found.machine != MachineId(*this_machine()):
        reason = f"it is of another machine, {found.machine.cpu} with {found.machine.cpus} CPUs"
    elif found.version != __version__:
        reason = f"it is of headrace {found.version}, this is {__version__}"
    elif now - _moment(found.measured_at) > STALE_AFTER:
        reason = f"it is of {found.day}, more than {STALE_AFTER.days} days ago"
    if reason:
        return Found(None, path, f"the calibration {path} is not used: {reason}; {again}")
    return Found(found, path)


def _moment(text: str) -> datetime:
    """Long ago where it is no date."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
