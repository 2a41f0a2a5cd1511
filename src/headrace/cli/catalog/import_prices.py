"""`headrace catalog import`: the file is read, rows are written, losses are reported."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.errors import CatalogError

if TYPE_CHECKING:
    from headrace.catalog.importing.rows_file import ImportedRows

_TITLES = {
    "litellm": (
        "LiteLLM's table of prices and context windows",
        "https://github.com/BerriAI/litellm",
    ),
    "models.dev": ("models.dev's catalogue of models", "https://models.dev"),
}


def run_import(
    table: str,
    file: str,
    output: str | None,
    providers: tuple[str, ...],
    day: dt.date,
    as_json: bool,
) -> None:
    """Import and report. Raises CatalogError for a table that cannot be read or written."""
    from headrace.catalog.fact import Source
    from headrace.catalog.importing.rows_file import file_text, provider_id
    from headrace.catalog.names import hint
    from headrace.catalog.user_folder import user_folder

    found = _read(table, Path(file).expanduser())
    if providers:
        wanted = {provider_id(name) for name in providers}
        kept = [row for row in found.rows if row.provider in wanted]
        if not kept:
            there = sorted({row.provider for row in found.rows})
            raise CatalogError(
                f"{file}: no prices of {', '.join(providers)}; {hint(providers[0], there)}"
            )
        found = found._replace(rows=kept)
    title, url = _TITLES[table]
    slug = table.replace(".", "-")
    source = Source(id=f"{slug}-{day.isoformat()}", title=title, date=day, url=url)
    path = Path(output).expanduser() if output else user_folder(os.environ) / f"{slug}.toml"
    _write(path, file_text(found, source, day))
    _report(found, path, as_json)


def _read(table: str, path: Path) -> ImportedRows:
    if table == "models.dev":
        from headrace.catalog.importing.models_dev import read_models_dev

        return read_models_dev(path)
    from headrace.catalog.files import MAX_FILE_BYTES
    from headrace.catalog.importing.litellm import read_litellm

    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES)
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}") from error
    return read_litellm(content)


def _write(path: Path, text: str) -> None:
    """As a whole or not at all: half a file would be a fault in the user's catalog."""
    from headrace.atomic_file import atomic_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        raise CatalogError(f"{path}: cannot be written: {error.strerror or error}") from error


def _report(found: ImportedRows, path: Path, as_json: bool) -> None:
    if as_json:
        import msgspec

        click.echo(
            msgspec.json.encode(
                {
                    "file": str(path),
                    "rows": len(found.rows),
                    "skipped": dict(found.skipped.most_common()),
                    "unknown_fields": dict(found.unknown.most_common()),
                }
            )
        )
        return
    click.echo(f"{len(found.rows)} prices written to {path}")
    for reason, count in found.skipped.most_common():
        click.echo(f"left out {count}: {reason}", err=True)
    if found.unknown:
        fields = ", ".join(f"{name} ({count})" for name, count in found.unknown.most_common())
        click.echo(f"fields about prices that the catalog has no place for: {fields}", err=True)
