"""`headrace imatrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command(short_help="Measure what matters in a model's matrices, for quantize.")
@click.argument("model", metavar="MODEL")
@click.option(
    "--text",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="UTF-8 file that the model reads.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("imatrix.gguf"),
    show_default=True,
    help="File to write.",
)
@click.option(
    "--context",
    type=click.IntRange(min=4),
    default=512,
    show_default=True,
    help="Tokens in a window.",
)
@click.option(
    "--windows",
    "limit",
    type=click.IntRange(min=1),
    help="Number of windows to read. [default: the whole text]",
)
@click.option("--force", is_flag=True, help="Replace the file.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def imatrix(
    model: str,
    text: Path,
    output: Path,
    context: int,
    limit: int | None,
    force: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Read a text with MODEL and write how large the inputs of each matrix were.

    The file has llama.cpp's imatrix format; `headrace quantize --imatrix` and llama-quantize weigh
    rounding errors by it. The text should be like what the model will be used for; some hundred
    windows are enough.

    \b
    headrace imatrix ./model-BF16.gguf --text notes.txt
    headrace imatrix Qwen/Qwen3-0.6B --text wiki.train.raw --windows 200 -o qwen.imatrix.gguf
    """
    import msgspec

    from headrace.cli.counting import counting
    from headrace.cli.obtain import obtain
    from headrace.config import EngineConfig
    from headrace.errors import ConfigError
    from headrace.eval.importance import measured_importance
    from headrace.eval.text import windows_of_file
    from headrace.ops import make_ops
    from headrace.weights.open import open_checkpoint
    from headrace.weights.quantize.importance import write_importance
    from headrace.weights.store.resolve import resolve_model

    if output.exists() and not force:
        raise ConfigError(f"{output} exists already; --force replaces it")
    config, _ = obtain(EngineConfig(model=model, threads=threads))
    checkpoint = open_checkpoint(resolve_model(config.model))
    windows = windows_of_file(checkpoint, text, context, limit=limit)
    ops = make_ops("cpu", cpu_level=config.cpu_level, threads=config.threads)
    with counting("windows") as progress:
        found = measured_importance(checkpoint, ops, windows, text.name, progress=progress)
    nbytes = write_importance(output, found)
    unseen = sorted(name for name, sums in found.sums.items() if not sums.counts.all())
    if as_json:
        fields: dict[str, Any] = {
            "path": str(output), "bytes": nbytes, "matrices": len(found.sums),
            "windows": len(windows), "context": context, "unseen": unseen,
        }  # fmt: skip
        click.echo(msgspec.json.encode(fields))
        return
    click.echo(f"{output}: {len(found.sums)} matrices over {len(windows)} windows of {context}")
    if unseen:
        click.echo(f"experts that no token chose: in {', '.join(unseen)}; give more text")
