"""A file of measurements of whatever kind: our own, or lines of `headrace bench engine --json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from headrace.errors import ConfigError
from headrace.plan.calibration.engine_rows import engine_lines, measured_of_lines
from headrace.plan.calibration.measurements import (
    MeasurementSet,
    is_measured,
    read_bytes,
    read_measured,
)
from headrace.plan.model.model_shape import ModelShape


def read_engine_results(
    paths: Iterable[Path], shape_of: Callable[[str], ModelShape], model: str | None = None
) -> tuple[MeasurementSet, ...]:
    """What all of them hold. shape_of, model: as measured_of_lines takes them.

    Raises ConfigError for a file that holds no results.
    """
    found: list[MeasurementSet] = []
    for path in paths:
        data = read_bytes(path)
        if is_measured(data):
            found += read_measured(path)
            continue
        lines = engine_lines(path, data)
        if not lines:
            raise ConfigError(f"{path}: is empty; `headrace bench engine --json` prints results")
        found += measured_of_lines(path, lines, shape_of, model)
    return tuple(found)
