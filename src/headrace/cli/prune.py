"""`headrace prune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headrace.eval.prune import PruneOptions, PruneResult
    from headrace.eval.usage import Measure, Usage


@click.command(short_help="Drop the experts or layers that a text uses least.")
@click.argument("source", metavar="SRC")
@click.argument("out", metavar="DST", type=click.Path(path_type=Path))
@click.option(
    "--text",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="UTF-8 file that the model reads: what it will be used for.",
)
@click.option(
    "--experts", type=click.IntRange(min=1), help="Experts that stay in each layer that has any."
)
@click.option("--layers", type=click.IntRange(min=1), help="Layers that stay.")
@click.option(
    "--by",
    "measure",
    type=click.Choice(("count", "weight", "output")),
    default="count",
    show_default=True,
    help="Use of an expert: how many tokens chose it, the sum of the weights they gave it, or the "
    "sum of the norms of what it added.",
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
@click.option("--force", is_flag=True, help="Replace DST.")
@click.option("--dry-run", is_flag=True, help="Measure and print, and write nothing.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prune(
    source: str,
    out: Path,
    text: Path,
    experts: int | None,
    layers: int | None,
    measure: Measure,
    context: int,
    limit: int | None,
    force: bool,
    dry_run: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Read a text with the model SRC and write it to DST without what the text used least.

    Experts go by how much they added (--by), with their rows of the router, as many in each layer;
    layers by how little they turned what went through them. The model then needs less memory, and
    with fewer layers less time; how much worse it is says `headrace eval kl DST --base SRC`, on a
    text that was not read here. DST is a GGUF file where its name ends in .gguf, a Hugging Face
    folder otherwise, and has its name only when it is whole; what was measured is in its metadata.

    \b
    headrace prune moe-Q8_0.gguf small.gguf --experts 6 --text notes.txt
    headrace prune ./Qwen3-0.6B ./qwen3-24 --layers 24 --text notes.txt --windows 100
    """
    from headrace.cli.counting import counting
    from headrace.cli.obtain import obtain
    from headrace.cli.written_model import check_place, write_model
    from headrace.config import EngineConfig
    from headrace.eval.prune import (
        KEY,
        PruneOptions,
        check_alike,
        check_options,
        pruned,
        statement,
    )
    from headrace.eval.text import windows_of_file
    from headrace.eval.usage import measured_usage
    from headrace.ops import make_ops
    from headrace.weights.open import open_checkpoint
    from headrace.weights.store.resolve import resolve_model

    config, _ = obtain(EngineConfig(model=source, threads=threads))
    checkpoint = open_checkpoint(resolve_model(config.model))
    check_place(out, checkpoint, force)
    options = PruneOptions(experts, layers, measure)
    check_options(checkpoint, options)
    windows = windows_of_file(checkpoint, text, context, limit=limit)
    ops = make_ops("cpu", cpu_level=config.cpu_level, threads=config.threads)
    with counting("windows") as progress:
        usage = measured_usage(checkpoint, ops, windows, progress=progress)
    found = pruned(checkpoint, usage, options)
    report = _report(usage, found, options) | {"windows": len(windows), "context": context}
    if dry_run:
        _print(report, as_json)
        return
    stated = statement(usage, found, options, text.name, len(windows), context)
    with counting("bytes") as progress:
        made = write_model(
            found.checkpoint,
            out,
            metadata={**found.entries, KEY: stated},
            folder_metadata={KEY: stated},
            check=lambda path: check_alike(checkpoint, open_checkpoint(path), found.layers),
            progress=progress,
        )
    report |= {
        "path": str(out), "bytes": made.nbytes, "source_bytes": checkpoint.nbytes,
        "notes": list(made.notes),
    }  # fmt: skip
    _print(report, as_json)


def _report(usage: Usage, found: PruneResult, options: PruneOptions) -> dict[str, Any]:
    gone = [layer for layer in range(len(usage.change)) if layer not in found.layers]
    return {
        "tokens": usage.tokens,
        "by": options.measure,
        "change": [round(value, 6) for value in usage.change],
        "dropped_layers": gone,
        "experts": [
            {
                "layer": layer,
                "kept": list(numbers),
                "kept_share": round(found.kept_share[layer], 4),
                "unused": int((usage.experts[layer].count == 0).sum()),
            }
            for layer, numbers in found.experts.items()
        ],
    }


def _print(report: dict[str, Any], as_json: bool) -> None:
    import msgspec

    from headrace.cli.fetch_bar import size_text
    from headrace.cli.notes import note

    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    for text in report.get("notes", ()):
        note(text)
    for layer in report["experts"]:
        numbers = ", ".join(map(str, layer["kept"]))
        click.echo(
            f"layer {layer['layer']}: {layer['kept_share']:.1%} of {report['by']} in the experts "
            f"that stay: {numbers}"
        )
    for layer in report["dropped_layers"]:
        click.echo(f"layer {layer} goes: 1 - cos is {report['change'][layer]:.4f}")
    if "path" in report:
        sizes = f"{size_text(report['bytes'])} of {size_text(report['source_bytes'])}"
        click.echo(f"{report['path']}: {sizes}, by {report['tokens']:,} tokens")
