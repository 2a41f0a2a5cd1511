"""`headrace eval tensors`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.eval.options import located
from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.eval.tensor_errors import TensorErrors


@click.command(short_help="Measure how far each tensor is from that of the source.")
@click.argument("model")
@click.option("--base", required=True, help="The source that MODEL was made of: a path or a name.")
@click.option(
    "--imatrix",
    "importance",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Importance of columns that weighs the errors: a file of `headrace imatrix` or "
    "llama-imatrix.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def tensors(model: str, base: str, importance: Path | None, as_json: bool) -> None:
    """Compare every tensor of MODEL with that of --base.

    Prints the relative root-mean-square error of each, the worst first; tensors that hold the same
    values are only counted.

    \b
    headrace eval tensors ./model-Q4_K_M.gguf --base ./model-BF16.gguf
    headrace eval tensors ./model-IQ4_XS.gguf --base ./Qwen3-0.6B --imatrix qwen3.imatrix.gguf
    """
    from headrace.cli.counting import counting
    from headrace.eval.tensor_errors import tensor_errors
    from headrace.weights.quantize.importance import read_importance

    columns = None if importance is None else read_importance(importance)
    with counting("tensors") as progress:
        result = tensor_errors(located(model), located(base), columns, progress=progress)
    if as_json:
        print_json(result)
        return
    _print_table(result)


def _print_table(result: TensorErrors) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("tensor", overflow="fold")
    for name in ("kind", "of", "bits", "relative RMSE", "largest"):
        table.add_column(name, justify="right")
    changed = [tensor for tensor in result.tensors if tensor.largest]
    for tensor in sorted(changed, key=lambda tensor: -tensor.relative_rmse):
        mark = "" if tensor.weighted or not any(each.weighted for each in changed) else " *"
        table.add_row(
            tensor.name + mark, tensor.kind, tensor.base_kind, f"{tensor.bits_per_weight:.2f}",
            f"{tensor.relative_rmse:.6f}", f"{tensor.largest:.4g}",
        )  # fmt: skip
    Console(soft_wrap=True).print(table)
    click.echo(
        f"{len(changed)} tensors differ, {result.exact} hold the same values; over all "
        f"{result.relative_rmse:.6f}"
    )
    if any(not tensor.weighted for tensor in changed) and any(t.weighted for t in changed):
        click.echo("* without importance")
    if result.extra:
        click.echo(f"not in the source: {', '.join(result.extra)}")
