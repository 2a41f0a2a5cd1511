"""`headrace quantize --format`: a folder of one of Hugging Face's layouts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headrace.cli.json_line import print_json
from headrace.errors import ConfigError

DEFAULT_WINDOWS = 128
"""Windows of 512 tokens, 65,536 in all: what GPTQ's and AWQ's papers calibrate with (128 samples),
a quarter of their length."""


@dataclass(frozen=True)
class FolderOptions:
    """The options of the command that count for a folder."""

    format: str
    text: Path | None
    context: int
    windows: int
    """At most so many; fewer where the text ends."""
    group_size: int | None
    allow_requantize: bool
    force: bool
    threads: int
    compressor: Path
    """Python of the environment that has llm-compressor."""
    as_json: bool


def make_folder(source: Path, out: Path, options: FolderOptions) -> None:
    """Make it and print what was made."""
    from headrace.cli.written_model import check_place, made_beside
    from headrace.weights.compress.formats import format_of
    from headrace.weights.compress.library import check_installed, run_job
    from headrace.weights.compress.make import (
        CompressOptions,
        check_group_size,
        compress,
    )
    from headrace.weights.open import open_checkpoint

    start_s = time.perf_counter()
    wanted = format_of(options.format)
    if wanted.reads_text != (options.text is not None):
        raise ConfigError(
            f"--format {options.format} is made while the model reads: name a UTF-8 file with "
            "--text"
            if wanted.reads_text
            else f"--text: {options.format} is made without a text; omit it"
        )
    if out.suffix == ".gguf":
        raise ConfigError(f"{out}: --format writes a folder; a name without .gguf is required")
    checkpoint = open_checkpoint(source)
    check_place(out, checkpoint, options.force)
    check_group_size(checkpoint, wanted, options.group_size)
    _check_requantize(checkpoint, options.allow_requantize)
    check_installed(options.compressor)
    windows: Sequence[Sequence[int]] = ()
    if options.text is not None:
        from headrace.eval.text import windows_of_file

        windows = windows_of_file(checkpoint, options.text, options.context, limit=options.windows)
    with made_beside(out) as new:
        folder, opened = _plain_folder(checkpoint, new.with_name(f"{new.name}.source"))
        order = CompressOptions(wanted, options.group_size, windows, options.threads)
        made = compress(
            folder, opened, new, order, lambda job, work: run_job(job, work, options.compressor)
        )
    seconds = time.perf_counter() - start_s
    fields = {
        "event": "done", "path": str(out), "format": options.format.lower(), "bytes": made.nbytes,
        "source_bytes": checkpoint.nbytes, "values": made.num_values,
        "bits_per_weight": round(made.bits_per_weight, 4), "kinds": dict(made.kinds),
        "program": made.program, "windows": len(windows), "notes": list(made.notes),
        "wall_s": round(seconds, 3),
    }  # fmt: skip
    _print(fields, options.as_json)


def _check_requantize(checkpoint: Any, allowed: bool) -> None:
    from headrace.weights.compress.make import quantised_tensor

    tensor = quantised_tensor(checkpoint)
    if tensor is not None and not allowed:
        raise ConfigError(
            f"tensor {tensor.name!r} is {tensor.codec.name} already, and quantising it again adds "
            "to its error; take a source of 16 or 32 bits, or give --allow-requantize"
        )


def _plain_folder(checkpoint: Any, place: Path) -> tuple[Path, Any]:
    """The checkpoint as a folder of plain numbers, and opened: itself, or written to `place`."""
    from headrace.cli.counting import counting
    from headrace.cli.written_model import write_model
    from headrace.weights.compress.make import is_plain
    from headrace.weights.open import open_checkpoint

    if is_plain(checkpoint):
        return checkpoint.path, checkpoint
    with counting("bytes") as progress:
        write_model(checkpoint, place, codec="BF16", progress=progress)
    return place, open_checkpoint(place)


def _print(fields: dict[str, Any], as_json: bool) -> None:
    from headrace.cli.fetch_bar import size_text
    from headrace.cli.notes import note

    if as_json:
        print_json(fields)
        return
    for text in fields["notes"]:
        note(text)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(fields["kinds"].items()))
    click.echo(
        f"{fields['path']}: {fields['format']}, {size_text(fields['bytes'])} of "
        f"{size_text(fields['source_bytes'])}, {fields['bits_per_weight']:.2f} bits per weight, "
        f"in {fields['wall_s']:.1f} s by {fields['program']}"
    )
    click.echo(f"tensors: {kinds}")
