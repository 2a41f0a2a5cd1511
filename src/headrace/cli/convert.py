"""`headrace convert`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.weights.checkpoint import Checkpoint
    from headrace.weights.conversion.both_ways import ConversionResult


@click.command(short_help="Write a model as a GGUF file or as a Hugging Face folder.")
@click.argument("source", metavar="SRC")
@click.argument("out", metavar="DST", type=click.Path(path_type=Path))
@click.option(
    "--type",
    "kind",
    type=click.Choice(("F32", "F16", "BF16"), case_sensitive=False),
    help="Kind of the matrices. [default: each keeps its own; in a folder, what is quantised "
    "becomes F32]",
)
@click.option(
    "--tokenizer-pre",
    help="Rule by which text is split, where the file's is missing or wrong.",
)
@click.option("--force", is_flag=True, help="Replace DST.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert(
    source: str, out: Path, kind: str | None, tokenizer_pre: str | None, force: bool, as_json: bool
) -> None:
    """Write the model SRC to DST: a GGUF file where the name ends in .gguf, a folder otherwise.

    SRC is a GGUF file, a Hugging Face folder or a model's name on the hub. Weights pass through a
    few MiB of memory, and DST has its name only when it is whole. Without --type no value changes,
    and a model that went through the other container and back has the bits that it had.

    \b
    headrace convert ./Qwen3-0.6B qwen3-0.6b-BF16.gguf
    headrace convert qwen3-0.6b-Q8_0.gguf ./qwen3-folder --type BF16
    """
    import msgspec

    from headrace.cli.counting import counting
    from headrace.cli.fetch_bar import size_text
    from headrace.cli.notes import note
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.errors import CheckpointError
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=source))
    checkpoint = open_checkpoint(resolve_model(config.model))
    codec = None if kind is None else kind.upper()
    _check(out, checkpoint, force)
    write = _write_file if out.suffix == ".gguf" else _write_folder
    try:
        with counting("bytes") as progress:
            made = write(checkpoint, out, codec, tokenizer_pre, progress)
    except OSError as error:
        raise CheckpointError(f"{out}: cannot be written: {error.strerror}") from error
    if as_json:
        fields = {
            "path": str(out), "bytes": made.nbytes, "kinds": dict(made.codecs),
            "notes": list(made.notes),
        }  # fmt: skip
        click.echo(msgspec.json.encode(fields))
        return
    for text in made.notes:
        note(text)
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(made.codecs.items()))
    click.echo(f"{out}: {size_text(made.nbytes)}, tensors: {kinds}")


def _check(out: Path, checkpoint: Checkpoint, force: bool) -> None:
    from headrace.errors import ConfigError

    source = checkpoint.path
    if out.exists() and source.exists() and out.samefile(source):
        raise ConfigError(f"{out} is the source itself; name another place")
    if out.is_dir() and source.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"{out} holds the source; name another place")
    if out.exists() and out.is_dir() == (out.suffix == ".gguf"):
        raise ConfigError(
            f"{out}: a {'folder' if out.is_dir() else 'file'} is in the place of the other; a name "
            "that ends in .gguf is a file, any other a folder"
        )
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already; --force replaces it")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: a place in a folder that exists is required")


def _write_file(
    checkpoint: Checkpoint,
    out: Path,
    codec: str | None,
    pre: str | None,
    progress: Callable[[int, int], None],
) -> ConversionResult:
    from headrace.weights.conversion.convert import write_gguf

    return write_gguf(checkpoint, out, codec, pre=pre, progress=progress)


def _write_folder(
    checkpoint: Checkpoint,
    out: Path,
    codec: str | None,
    pre: str | None,
    progress: Callable[[int, int], None],
) -> ConversionResult:
    """Written beside its place, and moved there when it is whole."""
    from headrace.text.tokenizer_file import tokenizer_json_of
    from headrace.weights.conversion.convert import write_hf_folder

    tokenizer = None
    if checkpoint.tokenizer.json_path is None and "tokens" in checkpoint.tokenizer.gguf:
        tokenizer = tokenizer_json_of(checkpoint.tokenizer, checkpoint.eos_token_ids, pre)
    parent = out.absolute().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}.part.") as beside:
        made = write_hf_folder(
            checkpoint, Path(beside) / "new", codec, tokenizer_json=tokenizer, progress=progress
        )
        if out.exists():
            out.rename(Path(beside) / "old")
        made.path.rename(out)
        shutil.rmtree(Path(beside) / "old", ignore_errors=True)
    return made
