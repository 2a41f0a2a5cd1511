"""Recorded steps with drafts put beside what is calibrated.

A recording is JSON as `python -m benchmarks.speculation.replay FILE --record` writes it: `model`,
`draft`, `context`, `on` (the machine and the day), `steps` and `passes` with the seconds of several
of each size. Of each size the median is taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import MachineId, read_bytes
from headrace.plan.calibration.runs import calibrated_name
from headrace.plan.calibration.stored import Calibration, ModelFit
from headrace.plan.step.measured_steps import DraftPasses, MeasuredSteps, PassSize, StepSize


class _On(msgspec.Struct, frozen=True):
    cpu: str
    cpus: int
    memory_bytes: int
    version: str
    date: str


class _Step(msgspec.Struct, frozen=True):
    batch: int
    tokens: int
    seconds: tuple[float, ...]


class _Pass(msgspec.Struct, frozen=True):
    tokens: int
    seconds: tuple[float, ...]


class _File(msgspec.Struct, frozen=True):
    model: str
    on: _On
    steps: tuple[_Step, ...]
    passes: tuple[_Pass, ...] = ()
    draft: str = ""
    context: int = 128


class RecordedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A recording as read."""

    where: str
    model: str
    machine: MachineId
    version: str
    steps: MeasuredSteps


def is_recording(path: Path) -> bool:
    """Whether it is a file that seems to hold a recording; raises ConfigError as read_bytes."""
    if path.is_dir():
        return False
    data = read_bytes(path)
    return b'"steps"' in data and b'"passes"' in data and b'"headrace_measured"' not in data[:200]


def read_recorded(path: Path) -> RecordedSteps:
    """A recording of a file; raises ConfigError that says what is wrong with it."""
    try:
        said = msgspec.json.decode(read_bytes(path), type=_File)
        passes = tuple(
            PassSize(size.tokens, statistics.median(size.seconds))
            for size in sorted(said.passes, key=lambda size: size.tokens)
        )
        steps = MeasuredSteps(
            measured_at=said.on.date,
            context_tokens=said.context,
            steps=tuple(
                StepSize(size.batch, size.tokens, statistics.median(size.seconds))
                for size in said.steps
            ),
        )
        if passes and said.draft:
            steps = steps.with_draft(DraftPasses(draft=Path(said.draft).name, passes=passes))
    except (
        msgspec.DecodeError, UnicodeDecodeError, statistics.StatisticsError, ConfigError,
    ) as error:  # fmt: skip
        raise ConfigError(f"{path}: is not a recording of steps with drafts: {error}") from error
    on = said.on
    return RecordedSteps(
        where=str(path),
        model=Path(said.model).name,
        machine=MachineId(on.cpu, on.cpus, on.memory_bytes),
        version=on.version,
        steps=steps,
    )


def with_recorded(
    calibration: Calibration, recorded: Sequence[RecordedSteps], model: str | None = None
) -> Calibration:
    """The same with what drafts cost, of the models that the recordings are of.

    model: the calibrated model that all of them are of; None: each by the name that it has. Raises
    ConfigError for a recording of another machine or version, or of a model that is not calibrated.
    """
    models = calibration.models
    for each in recorded:
        for what, seen, own in (
            ("machine", each.machine, calibration.machine),
            ("version", each.version, calibration.version),
        ):
            if seen != own:
                raise ConfigError(
                    f"{each.where}: is of another {what} than the calibration ({_said(seen)}, not "
                    f"{_said(own)}): record it again here"
                )
        name = calibrated_name(calibration, each.where, model or each.model)
        models = tuple(_with(fit, each.steps) if fit.model == name else fit for fit in models)
    return msgspec.structs.replace(calibration, models=models)


def _with(one: ModelFit, steps: MeasuredSteps) -> ModelFit:
    """Drafts that were measured before stay, where these steps lack them."""
    named = {each.draft for each in steps.drafts}
    before = () if one.draft_steps is None else one.draft_steps.drafts
    for each in before:
        if each.draft not in named:
            steps = steps.with_draft(each)
    return msgspec.structs.replace(one, draft_steps=steps)


def _said(value: MachineId | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value.cpu} with {value.cpus} CPUs and {value.memory_bytes / 2**30:.0f} GiB"
