"""Lines of `headrace bench engine --json` as measurements, with the work of each from the model.

Read as a file: what is needed of a line is declared here, whatever else it holds is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from headrace import __version__
from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import (
    EngineTest,
    MachineId,
    MeasurementSet,
    Row,
    kind_of,
    steps_of,
)
from headrace.plan.calibration.stored import RUNTIME
from headrace.plan.memory.kv_cache import KvKind
from headrace.plan.model.model_shape import ModelShape
from headrace.plan.step.step import StepCounter, stored_as_header

_KV_BITS = {"f32": 32, "f16": 16, "bf16": 16, "fp8": 8, "int8": 8, "q8_0": 8, "q4_0": 4}
"""Of a value in the types of the engine's cache."""

_SCALED = {"int8", "q8_0", "q4_0"}
"""Those with a scale for each token of a head."""


class EngineLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `headrace bench engine --json`. Older versions did not write where it was
    measured; those fields are "" and 0."""

    prompt: int
    new: int
    batch: int
    depth: int
    tokens_per_s: float
    least_tokens_per_s: float
    most_tokens_per_s: float
    repeats: int
    kv_cache_dtype: str
    cpu_level: str
    threads: int
    model: str = ""
    version: str = ""
    measured_at: str = ""
    cpu: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    step_tokens: int = 0


def engine_lines(path: Path, data: bytes) -> tuple[EngineLine, ...]:
    """Of a file's content; raises ConfigError naming the line that is none."""
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=EngineLine)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path}, line {number}: is not a result of `headrace bench engine --json`: {error}"
            ) from error
        if not one.tokens_per_s > 0:
            raise ConfigError(f"{path}, line {number}: tokens_per_s is {one.tokens_per_s}, not > 0")
        if min(one.prompt, one.new, one.depth) < 0 or one.batch < 1 or not one.prompt + one.new:
            raise ConfigError(
                f"{path}, line {number}: prompt, new, batch and depth are not those of a test"
            )
        found.append(one)
    return tuple(found)


def measured_of_lines(
    path: Path,
    lines: Iterable[EngineLine],
    shape_of: Callable[[str], ModelShape],
    model: str | None = None,
) -> tuple[MeasurementSet, ...]:
    """One set for each model and setting of the lines.

    shape_of: the shape of what a MODEL argument names. model: for lines that do not name theirs.
    Raises ConfigError for a line without a model or without its machine, and as shape_of does.
    """
    groups: dict[tuple[str, tuple[object, ...]], list[EngineLine]] = {}
    for line in lines:
        name = line.model or model
        if not name:
            raise ConfigError(f"{path}: does not name its model; name it with --model")
        if not (line.cpu and line.measured_at and line.step_tokens):
            raise ConfigError(
                f"{path}: does not state where and when it was measured, as results of an "
                "older version of `headrace bench engine --json` do not: measure again"
            )
        groups.setdefault((name, _setting(line)), []).append(line)
    found = []
    for (name, _), group in groups.items():
        first = group[0]
        shape = shape_of(name)
        counter = counter_of(shape, first.kv_cache_dtype)
        found.append(
            measured_of(
                shape,
                machine=MachineId(first.cpu, first.cpus, first.memory_bytes),
                cpu_level=first.cpu_level,
                threads=first.threads,
                kv_type=first.kv_cache_dtype,
                step_tokens=first.step_tokens,
                measured_at=max(line.measured_at for line in group),
                version=first.version or __version__,
                rows=tuple(_row(line, counter) for line in group),
            )
        )
    return tuple(found)


def counter_of(shape: ModelShape, kv_type: str) -> StepCounter:
    """Counts steps of a checkpoint as its header says; raises ConfigError for other shapes.

    kv_type: of K and V, or of each (`int8,q4_0`). What is kept near (`q4_0+near`), one span of a
    request, is counted as the rest.
    """
    names = kv_type.removesuffix("+near").split(",")
    if len(names) > 2 or not set(names) <= set(_KV_BITS):
        raise ConfigError(f"kv_cache_dtype is {kv_type!r}; known are {', '.join(_KV_BITS)}")
    kinds = [
        KvKind(name, _KV_BITS[name], "a type of the engine", head_scale_bytes=4 * (name in _SCALED))
        for name in names
    ]
    storage = stored_as_header(
        shape,
        bytes_per_key_value=kinds[0].mean_bytes_per_value(shape),
        bytes_per_value_value=kinds[-1].mean_bytes_per_value(shape),
    )
    if storage is None:
        raise ConfigError(
            f"{shape.name}: a {shape.source} does not state how weights are stored; name the "
            "file that was measured"
        )
    return StepCounter(shape, storage)


def measured_of(
    shape: ModelShape,
    *,
    machine: MachineId,
    cpu_level: str,
    threads: int,
    kv_type: str,
    step_tokens: int,
    measured_at: str,
    rows: tuple[Row, ...],
    version: str = __version__,
) -> MeasurementSet:
    """A set of a checkpoint in our own engine."""
    assert shape.weight_bytes is not None, "counter_of refuses others"
    return MeasurementSet(
        model=shape.name,
        kind=kind_of(dict(shape.weight_bytes)),
        parameters=shape.parameters.total,
        weight_bytes=sum(shape.weight_bytes.values()),
        machine=machine,
        runtime=RUNTIME,
        version=version,
        cpu_level=cpu_level,
        threads=threads,
        kv_type=kv_type,
        step_tokens=step_tokens,
        measured_at=measured_at,
        rows=rows,
    )


def _setting(line: EngineLine) -> tuple[object, ...]:
    return (
        line.cpu, line.cpus, line.memory_bytes, line.cpu_level, line.threads, line.kv_cache_dtype,
        line.version, line.step_tokens,
    )  # fmt: skip


def _row(line: EngineLine, counter: StepCounter) -> Row:
    test = EngineTest(line.prompt, line.new, line.batch, line.depth)
    return Row(
        prompt=line.prompt,
        new=line.new,
        batch=line.batch,
        depth=line.depth,
        tokens_per_s=line.tokens_per_s,
        least_tokens_per_s=line.least_tokens_per_s,
        most_tokens_per_s=line.most_tokens_per_s,
        repeats=line.repeats,
        steps=steps_of(counter, test, line.step_tokens),
    )
