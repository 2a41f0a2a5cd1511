"""`headrace quantize`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.json_line import print_json
from headrace.cli.numbers import NumberRange
from headrace.cli.quantize_folder import DEFAULT_WINDOWS, FolderOptions, make_folder
from headrace.cli.quantize_target import file_size, fit_target

if TYPE_CHECKING:
    from headrace.weights.quantize.make import QuantizeResult, Step


@click.command(short_help="Make a smaller file of a model.")
@click.argument("source", metavar="SRC")
@click.argument("out", metavar="DST", type=click.Path(path_type=Path))
@click.option(
    "--type",
    "mix",
    help="Mix of kinds, as llama-quantize names them: Q4_K_M, Q5_K_M, Q6_K, Q8_0, ...",
)
@click.option(
    "--format",
    "layout",
    metavar="LAYOUT",
    help="In place of a type: write a Hugging Face folder in this layout of compressed-tensors, by "
    "llm-compressor (see --compressor): fp8, fp8-static, fp8-block, int8, "
    "int8-smoothquant, w8a16, w4a16, w4a16-asym, w4a16-gptq, w4a16-awq, w4a8, w4afp8, nvfp4, "
    "nvfp4a16, mxfp4 or mxfp4a16.",
)
@click.option(
    "--group-size",
    type=click.Choice(("32", "64", "128")),
    help="Values along a row that share a scale, of formats of whole numbers in groups. "
    "[default: 128]",
)
@click.option(
    "--compressor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PYTHON",
    help="Python of an environment that has llm-compressor, for formats. [default: this one]",
)
@click.option(
    "--target-size",
    callback=file_size,
    metavar="SIZE",
    help="In place of a type: the best mix of kinds whose file is at most so large, such as 4GiB, "
    "750MB or a number of bytes.",
)
@click.option(
    "--target-kl",
    type=NumberRange(min=0, min_open=True),
    metavar="NATS",
    help="In place of a type: the smallest mix whose mean KL divergence from SRC is at most this.",
)
@click.option(
    "--text",
    type=click.Path(path_type=Path, dir_okay=False),
    help="UTF-8 file that targets are measured on, and that the model reads for formats that need "
    "it: what the model will be used for.",
)
@click.option(
    "--context",
    type=click.IntRange(min=4),
    default=512,
    show_default=True,
    help="Tokens in a window of the text; for targets its second half is measured.",
)
@click.option(
    "--windows",
    type=click.IntRange(min=2),
    help="Windows of the text. Of targets: at equal distances; every other one is chosen by, the "
    "rest judge the mixes found. Of formats: so many are read, from its beginning. [default: 32 "
    "for targets, 128 for formats]",
)
@click.option(
    "--curve-points",
    type=click.IntRange(0, 32),
    default=4,
    show_default=True,
    help="Mixes of other sizes that are found and measured as well.",
)
@click.option(
    "--measurements",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that measurements for targets are kept in, and go on from. "
    "[default: DST.measurements.json]",
)
@click.option(
    "--tensor-type",
    "overrides",
    multiple=True,
    metavar="PATTERN=KIND",
    help="Kind of all tensors whose names the regular expression is found in, in place of the "
    "mix's; the first that fits decides. Repeatable.",
)
@click.option("--pure", is_flag=True, help="Give every matrix the mix's own kind.")
@click.option(
    "--imatrix",
    "importance",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Importance of columns: a GGUF file of llama-imatrix.",
)
@click.option(
    "--allow-requantize",
    is_flag=True,
    help="Quantise again what is quantised already; the errors add up.",
)
@click.option("--force", is_flag=True, help="Replace DST.")
@click.option("--dry-run", is_flag=True, help="Print kinds and sizes, and write nothing.")
@click.option(
    "-t", "--threads", type=click.IntRange(1, 1024), help="Threads. [default: all processors]"
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each tensor and one at the end, in place of a progress bar.",
)
def quantize(
    source: str,
    out: Path,
    mix: str | None,
    layout: str | None,
    group_size: str | None,
    compressor: Path | None,
    target_size: int | None,
    target_kl: float | None,
    text: Path | None,
    context: int,
    windows: int | None,
    curve_points: int,
    measurements: Path | None,
    overrides: tuple[str, ...],
    pure: bool,
    importance: Path | None,
    allow_requantize: bool,
    force: bool,
    dry_run: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write the model SRC to DST in smaller kinds: a GGUF file, or with --format a folder.

    SRC is a GGUF file, a Hugging Face folder or a model's name on the hub. Which tensor gets which
    kind is llama-quantize's decision for the same type, and the file runs wherever such files do.
    Weights pass through a few MiB of memory for each thread. A GGUF file whose writing was
    interrupted is gone on with when the same command is given again; until it is whole it is
    .DST.part.

    With a target in place of a type the model reads --text again and again in other mixes of kinds,
    and from what they cost the best mix is found. The model, in F16, has to fit in memory. What
    was measured before an interruption is not measured again.

    With a format in place of a type DST is a Hugging Face folder, made by llm-compressor on the CPU
    or the GPU that PyTorch finds; the model has to fit in memory there. Formats of GPTQ, AWQ and
    SmoothQuant, and those with measured scales of activations, read --text. DST has its name only
    when it is whole; a run that was interrupted starts over.

    \b
    headrace quantize ./Qwen3-0.6B qwen3-0.6b-Q4_K_M.gguf --type Q4_K_M
    headrace quantize model-BF16.gguf small.gguf --type IQ4_XS --imatrix imatrix.gguf
    headrace quantize model-BF16.gguf model.gguf --type Q4_K_M --tensor-type 'ffn_down=Q6_K'
    headrace quantize model-BF16.gguf m.gguf --target-size 4GiB --text notes.txt --imatrix im.gguf
    headrace quantize ./Qwen3-0.6B ./Qwen3-0.6B-FP8 --format fp8
    headrace quantize ./Qwen3-0.6B ./Qwen3-0.6B-W4A16 --format w4a16-gptq --text notes.txt
    """
    import sys
    import time

    from headrace.errors import ConfigError
    from headrace.weights.quantize.make import QuantizeOptions, make, plan
    from headrace.weights.quantize.plan import mix_of, override_of

    wanted = {
        "--type": mix, "--format": layout, "--target-size": target_size, "--target-kl": target_kl,
    }  # fmt: skip
    given = [name for name, value in wanted.items() if value is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{' and '.join(given)} exclude each other"
            if given
            else "nothing says what to make: give --type, --format, --target-size or --target-kl"
        )
    _check_unused(given[0])
    start_s = time.perf_counter()
    threads = threads or len(os.sched_getaffinity(0))
    if layout is not None:
        options_of_folder = FolderOptions(
            format=layout,
            text=text,
            context=context,
            windows=windows or DEFAULT_WINDOWS,
            group_size=None if group_size is None else int(group_size),
            allow_requantize=allow_requantize,
            force=force,
            threads=threads,
            compressor=compressor or Path(sys.executable),
            as_json=as_json,
        )
        make_folder(_located(source), out, options_of_folder)
        return
    forced = [override_of(text) for text in overrides]
    if mix is None:
        if text is None or pure:
            raise ConfigError(
                f"{given[0]} chooses the kinds itself; omit --pure"
                if pure
                else f"{given[0]} is met by measuring: name a UTF-8 file with --text"
            )
        if out.exists() and not force and not dry_run:
            raise ConfigError(f"{out} exists already; --force replaces it")
    path = _located(source)
    if mix is None and text is not None:
        from headrace.eval.mixes.fit import Target
        from headrace.eval.mixes.order import TARGET_WINDOWS, FitOptions

        options = FitOptions(
            target=Target(target_size, target_kl),
            text=text,
            measurements=measurements or out.with_name(f"{out.name}.measurements.json"),
            context=context,
            windows=windows or TARGET_WINDOWS,
            curve_points=curve_points,
            importance=importance,
            overrides=forced,
            allow_requantize=allow_requantize,
        )
        order = fit_target(path, out, options, threads, as_json)
    else:
        order = QuantizeOptions(
            mix=mix_of(mix or ""),
            overrides=forced,
            pure=pure,
            importance=importance,
            allow_requantize=allow_requantize,
        )
    if dry_run:
        _print_plan(plan(path, order), as_json)
        return
    with _json_lines() if as_json else _bar_of_tensors() as show:
        made = make(path, out, order, threads=threads, progress=show, force=force)
    name = mix.upper() if mix is not None else "mixed kinds"
    _print_made(made, name, time.perf_counter() - start_s, as_json)


_OF_TEXT = ("text", "context", "windows")
_OF_TARGETS = ("curve_points", "measurements")
_OF_FOLDERS = ("group_size", "compressor")
_OF_FILES = ("overrides", "pure", "importance", "dry_run")
_NAMES = {"overrides": "tensor-type", "importance": "imatrix"}
_UNUSED = {
    "--type": ((*_OF_TEXT, *_OF_TARGETS, *_OF_FOLDERS), "--type measures nothing"),
    "--format": ((*_OF_FILES, *_OF_TARGETS), "--format makes all matrices of a folder alike"),
    "--target-size": (_OF_FOLDERS, "they belong to --format"),
    "--target-kl": (_OF_FOLDERS, "they belong to --format"),
}
"""Options that say nothing beside one that says what to make, and why."""


def _check_unused(given: str) -> None:
    """Raise ConfigError for options that were typed beside `given` in vain."""
    from click.core import ParameterSource

    from headrace.errors import ConfigError

    context = click.get_current_context()
    names, why = _UNUSED[given]
    typed = [
        f"--{_NAMES.get(name, name).replace('_', '-')}"
        for name in names
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if typed:
        raise ConfigError(f"{', '.join(typed)}: {why}; omit them")


def _located(source: str) -> Path:
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=source))
    return Path(resolve_model(config.model))


@contextmanager
def _json_lines() -> Iterator[Callable[[Step], None]]:
    yield lambda step: print_json({"event": "tensor", **_fields(step)})


def _fields(step: Step) -> dict[str, Any]:
    return {
        "name": step.name, "from": step.source.name, "to": step.codec.name, "number": step.number,
        "tensors": step.count, "values": step.num_values, "done_values": step.done_values,
        "total_values": step.total_values,
    }  # fmt: skip


@contextmanager
def _bar_of_tensors() -> Iterator[Callable[[Step], None]]:
    """A bar on stderr with the time left, in a terminal; silence elsewhere."""
    import sys

    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        Remaining(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(step: Step) -> None:
            what = f"{step.name} {step.source.name} > {step.codec.name}"
            progress.update(
                task, description=what, completed=step.done_values, total=step.total_values
            )

        yield show


def _print_plan(steps: list[Step], as_json: bool) -> None:
    from headrace.cli.fetch_bar import size_text

    total = 0
    for step in steps:
        nbytes = step.num_values * step.codec.block_bytes // step.codec.block_elements
        total += nbytes
        if as_json:
            print_json({"event": "tensor", **_fields(step), "bytes": nbytes})
        else:
            click.echo(f"{step.name}  {step.source.name} > {step.codec.name}  {nbytes:,} bytes")
    bits = 8 * total / max(1, steps[-1].total_values)
    if as_json:
        print_json({"event": "plan", "bytes": total, "bits_per_weight": round(bits, 4)})
    else:
        click.echo(f"{len(steps)} tensors, {size_text(total)}, {bits:.2f} bits per weight")


def _print_made(made: QuantizeResult, mix: str, seconds: float, as_json: bool) -> None:
    from headrace.cli.fetch_bar import size_text
    from headrace.cli.notes import note

    if as_json:
        fields = {
            "event": "done", "path": str(made.path), "type": mix, "bytes": made.nbytes,
            "source_bytes": made.source_nbytes, "values": made.num_values,
            "bits_per_weight": round(made.bits_per_weight, 4), "kinds": dict(made.kinds),
            "resumed_tensors": made.resumed, "notes": list(made.notes),
            "wall_s": round(seconds, 3),
        }  # fmt: skip
        print_json(fields)
        return
    for text in made.notes:
        note(text)
    if made.resumed:
        note(f"{made.resumed} tensors were there from an earlier run")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(made.kinds.items()))
    click.echo(
        f"{made.path}: {mix}, {size_text(made.nbytes)} of {size_text(made.source_nbytes)}, "
        f"{made.bits_per_weight:.2f} bits per weight, in {seconds:.1f} s"
    )
    click.echo(f"tensors: {kinds}")
