"""From a source and a target to the order for the file that is to be made."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import CheckpointError, ConfigError
from headrace.eval.mixes.candidates import group_of, matrices_of
from headrace.eval.mixes.fit import Fit, Fitter, Stage, Target
from headrace.eval.mixes.measurements import Measurements, subject_of
from headrace.eval.mixes.variants import Variants
from headrace.eval.text import windows_of_file
from headrace.ops import make_ops
from headrace.weights.codecs import BF16
from headrace.weights.gguf.checkpoint import checkpoint_of_gguf
from headrace.weights.gguf.file import GGUFFile
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.quantize.importance import read_importance
from headrace.weights.quantize.make import (
    QuantizeOptions,
    contents_of,
    made_bytes,
    make,
)
from headrace.weights.quantize.plan import Override, mix_of

TARGET_WINDOWS = 32
"""Sixteen of 512 tokens to choose by and as many to judge on, as headrace-base's figures in
docs/quantization.md were found with."""


@dataclass(frozen=True)
class FitOptions:
    """Choices about a search for kinds."""

    target: Target
    text: Path
    """What is read: UTF-8."""
    measurements: Path
    """The file that measurements are kept in."""
    context: int = 512
    """Tokens in a window."""
    windows: int = TARGET_WINDOWS
    """At equal distances in the text. Half of them are chosen by, the others judge mixes."""
    curve_points: int = 4
    """Mixes of other sizes that are measured."""
    importance: Path | None = None
    overrides: Sequence[Override] = ()
    allow_requantize: bool = False


def fitted(
    source: Path,
    path: Path,
    options: FitOptions,
    *,
    threads: int,
    progress: Callable[[Stage], None] = lambda stage: None,
) -> tuple[QuantizeOptions, Fit]:
    """The order for `make` that meets the target, and the fit.

    Beside `path` there has to be room for the model in F16 while this runs. Raises ConfigError,
    CheckpointError or UnsupportedModelError.
    """
    order = QuantizeOptions(
        mix_of("F16"),
        kinds={},
        importance=options.importance,
        allow_requantize=options.allow_requantize,
    )
    contents = contents_of(source)
    matrices = matrices_of(contents.sources, options.overrides)
    if not matrices:
        raise ConfigError(f"{source}: has no matrix that could get another kind")
    as_floats = {tensor.name: BF16 for each in matrices for tensor in each.tensors}
    # Errors of sources that are quantised already come before hours of work.
    other_bytes = made_bytes(source, path, replace(order, kinds=as_floats))
    other_bytes -= sum(each.nbytes(BF16) for each in matrices)
    importance = None if options.importance is None else read_importance(options.importance)
    with _as_floats(source, path, threads) as file:
        checkpoint = checkpoint_of_gguf(file)
        windows = spread(
            windows_of_file(checkpoint, options.text, options.context), options.windows
        )
        if len(windows) < 2:
            raise ConfigError(
                f"--text {options.text}: has one window of {options.context} tokens; two are "
                "needed, one to choose by and one to measure on: give more text or a smaller "
                "--context"
            )
        names = [each.name for each in matrices]
        measurements = Measurements(
            options.measurements, subject_of(source, options.importance, windows, names)
        )
        groups = [group_of(each, file.tensors, importance) for each in matrices]
        ops = make_ops("cpu", cpu_level="auto", threads=threads)
        with Variants(
            file, ops, windows, importance, folder=path.parent, threads=threads
        ) as variants:
            fitter = Fitter(variants, groups, other_bytes, measurements, len(windows), progress)
            fit = fitter.fit(options.target, options.curve_points)
    return replace(order, kinds=fit.point.kinds), fit


def spread(windows: Sequence[list[int]], count: int) -> list[list[int]]:
    """At most `count` of them, at equal distances from the first to the last."""
    if len(windows) <= count:
        return list(windows)
    return [windows[at * (len(windows) - 1) // (count - 1)] for at in range(count)]


@contextmanager
def _as_floats(source: Path, path: Path, threads: int) -> Iterator[GGUFFile]:
    """The source with its matrices in F16, or in F32 where F16 cannot hold a value."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.floats.") as folder:
        floats = Path(folder) / "model.gguf"
        order = QuantizeOptions(mix_of("F16"), allow_requantize=True)
        try:
            make(source, floats, order, threads=threads)
        except CheckpointError:
            make(source, floats, replace(order, mix=mix_of("F32")), threads=threads)
        yield read_gguf_model(floats)
