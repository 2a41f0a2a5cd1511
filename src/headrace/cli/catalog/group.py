"""`headrace catalog`: what is known, where from, and where sources disagree."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import datetime as dt

    from headrace.catalog import Catalog

KINDS = (
    "model", "hardware", "quantization", "runtime", "provider", "price", "technique",
    "measurement", "constant", "decision", "rule",
)  # fmt: skip

_FOLDERS = click.option(
    "--catalog",
    "folders",
    multiple=True,
    type=click.Path(),
    help="Folder of files that override what ships. [may be repeated]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def catalog() -> None:
    """Facts about models, hardware, prices and techniques, each with source and date.

    Files of your own in $XDG_CONFIG_HOME/headrace/catalog (~/.config) override what ships.
    """


@catalog.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.option("--filter", "text", default="", help="Only rows that have all these words.")
@_FOLDERS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
def list_rows(kind: str | None, text: str, folders: tuple[str, ...], as_json: bool) -> None:
    """List the rows of KIND, or of all kinds.

    A price is by provider and model; measurement is what others published, constant what belongs
    to no row. A mark after the id says that sources disagree; `headrace catalog show ID` says how.

    \b
    headrace catalog list
    headrace catalog list hardware --filter nvidia
    headrace catalog list price --json
    """
    from headrace.cli.catalog.tables import print_rows, row_json

    known = _catalog(folders)
    kinds = [kind] if kind else KINDS
    found = {name: known.table(name).search(text) for name in kinds}
    if as_json:
        for name, rows in found.items():
            for row in rows:
                click.echo(row_json(name, row))
        return
    if not any(found.values()):
        from headrace.errors import CatalogError

        raise CatalogError(f"no {kind or 'row'} matches {text!r}; omit a word or the kind")
    print_rows({name: rows for name, rows in found.items() if rows})


@catalog.command(short_help="Show every fact of a row, with source and date.")
@click.argument("name")
@_FOLDERS
@_JSON
def show(name: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Show all facts of the row NAME (an id or an alias), with source, date and disputes.

    The id of a contradiction (C19) works too.

    \b
    headrace catalog show h100
    headrace catalog show qwen3-8b --json
    headrace catalog show C19
    """
    from headrace.cli.catalog.tables import print_contradiction, print_row, row_json

    known = _catalog(folders)
    dispute = known.contradictions.get(name.upper())
    if dispute is not None:
        print_contradiction(known, dispute, as_json)
        return
    kind, row = known.find(name)
    if as_json:
        click.echo(row_json(kind, row, known))
    else:
        print_row(known, kind, row)


@catalog.command()
@click.argument("folders", nargs=-1, type=click.Path())
@click.option("--from", "old_day", metavar="DATE", help="Compare prices in force on this day ...")
@click.option("--to", "new_day", metavar="DATE", help="... with those on this day.")
@click.option("--kind", type=click.Choice(KINDS), help="Only rows of this kind.")
@_JSON
def diff(
    folders: tuple[str, ...],
    old_day: str | None,
    new_day: str | None,
    kind: str | None,
    as_json: bool,
) -> None:
    """Show what differs from what ships.

    Without FOLDERS your own folder is compared with what ships; one folder is compared with what
    ships, two with each other. --from and --to compare the prices of two days, in all folders.

    \b
    headrace catalog diff
    headrace catalog diff ./last-month ./mine --kind price
    headrace catalog diff --from 2026-03-01 --to 2026-11-01
    """
    from headrace.catalog import Catalog
    from headrace.catalog.difference import differences, price_differences
    from headrace.cli.catalog.tables import print_differences

    if (old_day is None) != (new_day is None):
        raise click.UsageError("--from and --to go together; give both or neither")
    if old_day is not None and new_day is not None:
        if kind not in (None, "price"):
            raise click.UsageError(
                f"only prices are dated; omit --kind {kind}, or give --kind price"
            )
        found = price_differences(_catalog(folders), _day(old_day), _day(new_day))
    else:
        if len(folders) > 2:
            raise click.UsageError("at most two folders can be compared")
        first = Catalog.load(folders[:-1])
        second = Catalog.load(folders[-1:]) if folders else _catalog(())
        found = differences(first, second, [kind] if kind else KINDS)
    print_differences(found, as_json)


@catalog.command("contradictions", short_help="List where sources disagree, and what is used here.")
@click.option("--filter", "text", default="", help="Only those that have all these words.")
@_FOLDERS
@_JSON
def contradictions(text: str, folders: tuple[str, ...], as_json: bool) -> None:
    """List where sources disagree: what each says, what is used here, and why.

    \b
    headrace catalog contradictions
    headrace catalog contradictions --filter h100
    """
    from headrace.cli.catalog.tables import print_contradictions

    print_contradictions(_catalog(folders), text, as_json)


@catalog.command(short_help="Count what headrace runs, plans or only knows, by topic.")
@click.option(
    "--does",
    multiple=True,
    type=click.Choice(["runs", "part", "plans", "knows", "rejected"]),
    help="List the items that headrace runs, runs in part, plans, only knows, or rejected. [may be "
    "repeated]",
)
@click.option(
    "--topic", "topics", multiple=True, help="List the items of a topic. [may be repeated]"
)
@click.option(
    "--document", "documents", multiple=True, help="List the items of a document. [may be repeated]"
)
@_JSON
def coverage(
    does: tuple[str, ...], topics: tuple[str, ...], documents: tuple[str, ...], as_json: bool
) -> None:
    """Count what headrace does with what five guides to serving language models describe.

    The catalog began with these guides. Each of their sections, table rows, formulas, blocks of
    code, checklist items and pitfalls is an item: headrace runs it, runs a part of it, computes it
    in `headrace plan`, only knows it as a fact of the catalog, or rejects it with a reason. Tests
    and commands show what runs. With --does, --topic or --document the items are listed.

    \b
    headrace catalog coverage
    headrace catalog coverage --does part
    headrace catalog coverage --topic speculation --json
    """
    from headrace.cli.catalog.coverage import print_coverage

    print_coverage(does, topics, documents, as_json)


@catalog.command("import", short_help="Import prices from LiteLLM's or models.dev's table.")
@click.argument("table", type=click.Choice(["litellm", "models.dev"]))
@click.argument("file", type=click.Path())
@click.option("--output", type=click.Path(), help="File to write. [default: in your own folder]")
@click.option(
    "--provider", "providers", multiple=True, help="Only prices of this provider. [may be repeated]"
)
@click.option("--as-of", "day", metavar="DATE", help="The table's day. [default: today]")
@_JSON
def import_prices(
    table: str,
    file: str,
    output: str | None,
    providers: tuple[str, ...],
    day: str | None,
    as_json: bool,
) -> None:
    """Write prices of LiteLLM's or models.dev's table FILE as rows that override what ships.

    FILE is LiteLLM's model_prices_and_context_window.json; of models.dev its api.json, or its
    repository as a folder or a .tar.gz. Fields about prices that have no place
    here are reported.

    \b
    headrace catalog import litellm model_prices_and_context_window.json
    headrace catalog import models.dev api.json --provider groq --as-of 2026-11-01
    """
    import datetime as dt

    from headrace.cli.catalog.import_prices import run_import

    today = dt.date.today() if day is None else _day(day)
    run_import(table, file, output, providers, today, as_json)


def _catalog(named: tuple[str, ...]) -> Catalog:
    """What ships, overridden by the user's own folder and those named."""
    from headrace.catalog import Catalog
    from headrace.catalog.user_folder import folders

    return Catalog.load(folders(os.environ, named))


def _day(text: str) -> dt.date:
    import datetime as dt

    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a date; write it as 2026-03-01") from error
