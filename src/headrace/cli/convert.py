"""`headrace convert`."""

from __future__ import annotations

from pathlib import Path

import click


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
    from headrace.cli.written_model import check_place, write_model
    from headrace.config import EngineConfig
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=source))
    checkpoint = open_checkpoint(resolve_model(config.model))
    codec = None if kind is None else kind.upper()
    check_place(out, checkpoint, force)
    with counting("bytes") as progress:
        made = write_model(checkpoint, out, codec=codec, pre=tokenizer_pre, progress=progress)
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
