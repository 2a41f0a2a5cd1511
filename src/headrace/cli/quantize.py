"""`headrace quantize`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headrace.weights.quantize.make import QuantizeResult, Step


@click.command(short_help="Make a smaller file of a model.")
@click.argument("source", metavar="SRC")
@click.argument("out", metavar="DST", type=click.Path(path_type=Path))
@click.option(
    "--type",
    "mix",
    required=True,
    help="Mix of kinds, as llama-quantize names them: Q4_K_M, Q5_K_M, Q6_K, Q8_0, ...",
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
    mix: str,
    overrides: tuple[str, ...],
    pure: bool,
    importance: Path | None,
    allow_requantize: bool,
    force: bool,
    dry_run: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write the model SRC to the GGUF file DST in smaller kinds.

    SRC is a GGUF file, a Hugging Face folder or a model's name on the hub. Which tensor gets which
    kind is llama-quantize's decision for the same type, and the file runs wherever such files do.
    Weights pass through a few MiB of memory for each thread. A run that was interrupted goes on
    where it stopped when the same command is given again; until a file is whole it is .DST.part.

    \b
    headrace quantize ./Qwen3-0.6B qwen3-0.6b-Q4_K_M.gguf --type Q4_K_M
    headrace quantize model-BF16.gguf small.gguf --type IQ4_XS --imatrix imatrix.gguf
    headrace quantize model-BF16.gguf model.gguf --type Q4_K_M --tensor-type 'ffn_down=Q6_K'
    """
    import time

    from headrace.weights.quantize.make import QuantizeOptions, make, plan
    from headrace.weights.quantize.plan import mix_of, override_of

    order = QuantizeOptions(
        mix=mix_of(mix),
        overrides=[override_of(text) for text in overrides],
        pure=pure,
        importance=importance,
        allow_requantize=allow_requantize,
    )
    path = _located(source)
    if dry_run:
        _print_plan(plan(path, order), as_json)
        return
    start_s = time.perf_counter()
    with _json_lines() if as_json else _bar() as show:
        made = make(
            path,
            out,
            order,
            threads=threads or len(os.sched_getaffinity(0)),
            progress=show,
            force=force,
        )
    _print_made(made, mix.upper(), time.perf_counter() - start_s, as_json)


def _located(source: str) -> Path:
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=source))
    return Path(resolve_model(config.model))


@contextmanager
def _json_lines() -> Iterator[Callable[[Step], None]]:
    yield lambda step: _print_json({"event": "tensor", **_fields(step)})


def _fields(step: Step) -> dict[str, Any]:
    return {
        "name": step.name, "from": step.source.name, "to": step.codec.name, "number": step.number,
        "tensors": step.count, "values": step.num_values, "done_values": step.done_values,
        "total_values": step.total_values,
    }  # fmt: skip


@contextmanager
def _bar() -> Iterator[Callable[[Step], None]]:
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
            _print_json({"event": "tensor", **_fields(step), "bytes": nbytes})
        else:
            click.echo(f"{step.name}  {step.source.name} > {step.codec.name}  {nbytes:,} bytes")
    bits = 8 * total / max(1, steps[-1].total_values)
    if as_json:
        _print_json({"event": "plan", "bytes": total, "bits_per_weight": round(bits, 4)})
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
        _print_json(fields)
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


def _print_json(fields: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(fields))
