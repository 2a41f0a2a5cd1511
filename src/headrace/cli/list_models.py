"""`headrace list`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.weights.store.entry import StoredModel

# Files and pipes have no width; names are not broken over lines there.
_WIDE_COLUMNS = 240


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per model.")
def list_models(as_json: bool) -> None:
    """List the models on this disk that other commands take by name.

    These are the model in the package, those in Hugging Face's cache, whichever program fetched
    them, and those of Ollama. Only headers are read. A model that is damaged or incomplete is
    listed with the reason.

    \b
    headrace list
    headrace list --json
    """
    from headrace.weights.store.inventory import stored_models

    models = stored_models(os.environ)
    if as_json:
        import msgspec

        for model in models:
            click.echo(msgspec.json.encode(_fields(model)))
        return
    _print(list(models))


def _fields(model: StoredModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "format": model.format,
        "codec": model.codec,
        "family": model.family,
        "parameters": model.parameters,
        "size_bytes": model.size_bytes,
        "modified": _date(model.modified_s),
        "path": visible(str(model.path)),
        "broken": model.broken,
    }


def _date(seconds: float) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds else None


def _print(models: list[StoredModel]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", overflow="fold")
    for title in ("source", "format", "codec", "family"):
        table.add_column(title, no_wrap=True)
    for title in ("parameters", "GB"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("modified", no_wrap=True)
    for model in models:
        table.add_row(
            visible(model.name), model.source, model.format or "?", model.codec or "?",
            visible(model.family or "?"),
            _count(model.parameters), f"{model.size_bytes / 1e9:.2f}",
            time.strftime("%Y-%m-%d", time.localtime(model.modified_s)) if model.size_bytes else "",
            style="dim" if model.broken else None,
        )  # fmt: skip
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _WIDE_COLUMNS
    console.print(table)
    for model in models:
        if model.broken:
            console.print(visible(f"{model.name}: {model.broken}"), soft_wrap=True)


def _count(parameters: int | None) -> str:
    if parameters is None:
        return "?"
    unit, factor = ("B", 1e9) if parameters >= 1e9 else ("M", 1e6)
    return f"{parameters / factor:.1f}{unit}"
