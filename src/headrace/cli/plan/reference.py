"""`headrace plan reference`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.plan.options import catalog_of

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.plan.reference.table import Table
    from headrace.plan.reference.topics import Topic


@click.command(short_help="Look up models, hardware, metrics, techniques.")
@click.argument("topic", required=False)
@click.argument("tree", required=False)
@click.option(
    "--sort", metavar="COLUMN", help="Sort by this column; -COLUMN sorts in descending order."
)
@click.option("--filter", "text", default="", help="Show only rows that contain all these words.")
@click.option(
    "--choose",
    "choices",
    metavar="OPTION",
    multiple=True,
    help="Answer to the next question of TREE, by name, label or number. [may be repeated]",
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file."
)
@click.option(
    "--catalog",
    "folders",
    multiple=True,
    type=click.Path(),
    help="Folder of catalog files that override the built-in ones. [may be repeated]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the facts of each cell.")
def reference(
    topic: str | None,
    tree: str | None,
    sort: str | None,
    text: str,
    choices: tuple[str, ...],
    html: Path | None,
    folders: tuple[str, ...],
    as_json: bool,
) -> None:
    """Look up facts by TOPIC: metrics, models, hardware, prices, techniques, pitfalls and more.

    Everything is read from the catalog and has a source and a date. Without TOPIC the topics are
    listed. `trees TREE` walks through a decision tree, asking questions in a terminal; --html
    writes one page of all topics, or of TOPIC, that needs no network.

    \b
    headrace plan reference hardware --sort -bandwidth --filter nvidia
    headrace plan reference trees runtime-by-use --choose app --choose production
    headrace plan reference --html reference.html
    """
    from headrace.plan.reference.topics import TOPICS, topic_named

    known = catalog_of(folders)
    if choices and tree is None:
        raise click.UsageError("--choose answers questions of a tree; name one: trees TREE")
    if tree is not None:
        _tree(known, topic_named(topic or "").name, tree, choices, html, sort or text, as_json)
        return
    wanted = list(TOPICS.values()) if topic is None else [topic_named(topic)]
    if sort is not None and topic is None:
        raise click.UsageError("--sort goes with a TOPIC: each table has columns of its own")
    shown = [(one, _tables(known, one, sort, text)) for one in wanted]
    shown = [(one, tables) for one, tables in shown if tables]
    if not shown:
        from headrace.errors import CatalogError

        raise CatalogError(f"no row of {topic or 'the reference'} has {text!r}; use fewer words")
    if html is not None:
        _page(known, shown, html)
    if as_json:
        import json

        from headrace.plan.reference.topics import as_dict

        click.echo(json.dumps([as_dict(*one) for one in shown], indent=2))
    elif html is None:
        from headrace.cli.plan.tables.reference import print_topic, print_topics

        if topic is None and not text:
            print_topics(shown)
        else:
            for one, tables in shown:
                print_topic(known, one, tables)


def _tables(known: Catalog, topic: Topic, sort: str | None, text: str) -> tuple[Table, ...]:
    """Filtered; sorted where a table has the column, which one of them must."""
    tables = topic.tables(known)
    if sort is not None:
        having = [one.place(sort.removeprefix("-")) is not None for one in tables]
        if not any(having):
            tables[0].sorted_by(sort)
        tables = tuple(
            one.sorted_by(sort) if has else one for one, has in zip(tables, having, strict=True)
        )
    filtered = (one.filtered(text) for one in tables)
    return tuple(one for one in filtered if one.lines)


def _page(known: Catalog, shown: list[tuple[Topic, tuple[Table, ...]]], path: Path) -> None:
    import datetime as dt

    from headrace.atomic_file import atomic_file
    from headrace.errors import HeadraceError
    from headrace.plan.reference.html import reference_page

    written = reference_page(known, shown, made_on=dt.datetime.now(dt.UTC).date())
    try:
        with atomic_file(path) as file:
            file.write(written.encode())
    except OSError as error:
        raise HeadraceError(f"{error.filename or path}: {error.strerror}") from error
    click.echo(f"saved in {path}", err=True)


def _tree(
    known: Catalog,
    topic: str,
    tree: str,
    choices: tuple[str, ...],
    html: Path | None,
    listed: str,
    as_json: bool,
) -> None:
    import sys

    from headrace.plan.reference.walk import walk

    if topic != "trees":
        raise click.UsageError(
            f"--choose is only for trees; headrace catalog show {tree} shows a whole row"
        )
    if html is not None or listed:
        raise click.UsageError("--html, --sort and --filter cannot be used with a TREE")
    decision = known.decisions[tree]
    if as_json:
        import json

        click.echo(json.dumps(walk(known, decision, choices).as_dict(), indent=2))
        return
    from headrace.cli.plan.tables.reference import ask, print_tree, print_walk

    if sys.stdin.isatty():
        ask(known, decision, choices)
    elif choices:
        print_walk(known, walk(known, decision, choices))
    else:
        print_tree(known, decision)
